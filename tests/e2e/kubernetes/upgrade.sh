# SPDX-License-Identifier: Apache-2.0
# A job that the chart and the programs of release 0.1.0 run continues with this version, as docs/kubernetes.md describes under "Upgrades".

if [ -z "$former" ]; then
  say "left out: an upgrade from release 0.1.0. FORMER does not name a folder with that release; \`.ci/nightly upgrade\` makes one"
  return
fi
"${load[@]}" "$former"/images/sluice-server.tar "$former"/images/sluice-fashion.tar
# The names of keys that 0.1 had.
sed -e "s/\"$version\"/\"0.1.0\"/" -e 's/{interval: /{every: /' -e 's/lease_timeout: /lease: /' -e 's/heartbeat_interval: /heartbeat: /' \
  "$work/values.yaml" >"$work/former.yaml"
secrets former
h install former "$former/source/helm/sluice" --values "$work/former.yaml" --set tls.existingSecret=former-tls,auth.existingSecret=former-token >/dev/null
ready former
versions() { for shard in 0 1; do k exec "former-sluice-server-$shard" -c server -- sluice-server --version; done | sort -u; }
[[ "$(versions)" == *"0.1.0"* ]] || fail "the shards of release 0.1.0 are version $(versions)"
await 120 "the first checkpoint of release 0.1.0" saved former 100
saved_by_former=$(metric former 0 sluice_checkpoint_step)

if h upgrade former $chart --reuse-values --set worker.restartOnUpgrade=true >"$work/refused" 2>&1; then
  fail "an upgrade with the defaults of release 0.1.0 was not refused"
fi
grep -q "use --reset-then-reuse-values" "$work/refused" || fail "the refusal says: $(cat "$work/refused")"
restart_all former --reset-then-reuse-values --set server.image.tag="$version",worker.image.tag="$version"
await 240 "the job continues with version $version" says former "continues after step"
ready former
[[ "$(versions)" == *"$version"* ]] || fail "after the upgrade, the shards are version $(versions)"
continued=$(k logs former-sluice-server-0 -c server | sed -n 's/.*continues after step \([0-9]*\).*/\1/p' | head -n 1)
[ "$continued" -ge "${saved_by_former%.*}" ] || fail "release 0.1.0 saved step $saved_by_former, and the job continued after step $continued"
say "from 0.1.0 to $version after step $continued"
await 240 "a checkpoint of version $version" saved former $((continued + 1))
complete former
[ "$(hashes former | wc -w)" = 1 ] || fail "the workers of an upgraded job ended with other parameters: $(hashes former)"
h uninstall former --wait >/dev/null
await 60 "nothing is left of an uninstalled release that was upgraded" gone former
say "a job of release 0.1.0 has finished with version $version"
