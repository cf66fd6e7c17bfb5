# SPDX-License-Identifier: Apache-2.0
# Changes the job file of a running job as docs/kubernetes.md describes, and later checks what remains of finished workers.

install changed --set worker.replicaCount=2,worker.ttlSecondsAfterFinished=30,job.checkpoint.interval=20
ready changed
await 120 "the first checkpoint" saved changed 20
restart_all changed --reuse-values --set-json job.optimizer.lr=0.05
workers_of_changed() { k get job -l app.kubernetes.io/instance=changed -o name; }
one_other_job() { [ "$(workers_of_changed | wc -l)" = 1 ] && [ "$(workers_of_changed)" != job.batch/changed-sluice-worker ]; }
await 60 "the workers' Job has another name" one_other_job
complete changed
[ "$(hashes changed | wc -w)" = 1 ] || fail "the workers of a changed job ended with other parameters: $(hashes changed)"
says changed "continues after step" || fail "a changed job did not go on from its checkpoint"
no_workers() { [ -z "$(workers_of_changed)" ]; }
await 120 "a finished Job of workers is removed" no_workers
h upgrade changed $chart --reuse-values --set-string server.podAnnotations.again=1 --wait --timeout 180s >/dev/null
h uninstall changed --wait >/dev/null
await 60 "nothing is left of an uninstalled release whose workers were gone" gone changed
say "a changed job file: the run went on from its checkpoint; its finished workers were removed in time"
