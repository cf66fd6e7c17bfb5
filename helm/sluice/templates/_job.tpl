{{/* The job file from the values, completed from the rest of the release. */}}
{{- define "sluice.job" -}}
{{- $job := deepCopy .Values.job -}}
{{- $workers := include "sluice.workerCount" . | int -}}
{{- $shards := .Values.server.replicaCount -}}
{{- if and (hasKey $job "workers") (ne (int $job.workers) (int $workers)) -}}
{{- $from := .Values.relay.enabled | ternary "the racks in relay.racks have" "worker.replicaCount" -}}
{{- fail (printf "job.workers is %v and %s %v: leave job.workers out, or make them equal" $job.workers $from $workers) -}}
{{- end -}}
{{- if and (hasKey $job "shards") (ne (int $job.shards) (int $shards)) -}}
{{- fail (printf "job.shards is %v and server.replicaCount %v: leave job.shards out, or make them equal" $job.shards $shards) -}}
{{- end -}}
{{- $_ := set $job "name" (default (include "sluice.fullname" .) $job.name) -}}
{{- $_ := set $job "workers" $workers -}}
{{- $_ := set $job "shards" $shards -}}
{{- if .Values.relay.enabled -}}
{{- $racks := include "sluice.rackSizes" . -}}
{{- $relays := default dict $job.relays -}}
{{- if and (hasKey $relays "workers") (ne (toJson $relays.workers) $racks) -}}
{{- fail (printf "job.relays.workers is %s and the racks in relay.racks have %s workers: leave job.relays.workers out, or make them equal" (toJson $relays.workers) $racks) -}}
{{- end -}}
{{- $_ := set $relays "workers" (fromJsonArray $racks) -}}
{{- $_ := set $job "relays" $relays -}}
{{- else if $job.relays -}}
{{- fail "job.relays is set and relay.enabled is false: set relay.enabled and relay.racks (with the number of workers of each rack), or remove job.relays" -}}
{{- end -}}
{{- $checkpoint := default dict $job.checkpoint -}}
{{- $_ := set $checkpoint "store" (default "shards" $checkpoint.store) -}}
{{- if eq $checkpoint.store "path" -}}
{{- if not (and .Values.worker.persistence.enabled (has "ReadWriteMany" .Values.worker.persistence.accessModes)) -}}
{{- fail "job.checkpoint.store is path: servers and workers then need one folder, so set worker.persistence.enabled with accessModes [ReadWriteMany], or leave store out (shards: each server keeps its part)" -}}
{{- end -}}
{{- $_ := set $checkpoint "dir" (default (printf "%s/checkpoints" .Values.worker.persistence.mountPath) $checkpoint.dir) -}}
{{- else -}}
{{- if ne (default "/var/lib/sluice" $checkpoint.dir) "/var/lib/sluice" -}}
{{- fail (printf "job.checkpoint.dir is %s: the servers' volumes are at /var/lib/sluice, so leave it out" $checkpoint.dir) -}}
{{- end -}}
{{- $_ := set $checkpoint "dir" "/var/lib/sluice" -}}
{{- end -}}
{{- $_ := set $job "checkpoint" $checkpoint -}}
{{- if and .Values.worker.persistence.enabled (not (hasKey $job "output")) -}}
{{- $_ := set $job "output" (printf "%s/result" .Values.worker.persistence.mountPath) -}}
{{- end -}}
{{/* Pulling images, binding volumes and replacing nodes takes longer than starting processes on existing machines. */}}
{{- $server := default dict $job.server -}}
{{/* Values for 0.1 use the name wait_limit. The programs refuse a job that has both names. */}}
{{- $rejoin := hasKey $server "wait_limit" | ternary "wait_limit" "rejoin_timeout" -}}
{{- $_ := set $job "server" (mergeOverwrite (dict "join_timeout" "30m" "connect_timeout" "5m" $rejoin "1h") $server) -}}
{{- toYaml $job -}}
{{- end -}}

{{- define "sluice.check" -}}
{{- if not .Values.server.tmp -}}
{{- fail "server.tmp is missing, because helm upgrade --reuse-values keeps the defaults of the installed chart, and this chart has more values: use --reset-then-reuse-values instead (docs/kubernetes.md, Upgrades)" -}}
{{- end -}}
{{- if and .Values.job .Values.existingJobConfigMap -}}
{{- fail "job and existingJobConfigMap are both set: give one of them" -}}
{{- end -}}
{{- if not (or .Values.job .Values.existingJobConfigMap) -}}
{{- fail "no job: set job (the job file as a map, docs/job-file.md) or existingJobConfigMap" -}}
{{- end -}}
{{- if .Values.tls.enabled -}}
{{- $sources := list .Values.tls.existingSecret .Values.tls.certManager.issuerRef (or .Values.tls.serverSecret .Values.tls.workerSecret) | compact -}}
{{- if gt (len $sources) 1 -}}
{{- fail "there is more than one source of certificates: set only tls.certManager.issuerRef, only tls.serverSecret and tls.workerSecret, or only tls.existingSecret" -}}
{{- end -}}
{{- if not $sources -}}
{{- fail "tls.enabled needs tls.certManager.issuerRef, or tls.serverSecret and tls.workerSecret (each with tls.crt, tls.key, ca.crt), or tls.existingSecret with one certificate for all pods" -}}
{{- end -}}
{{- if ne (empty .Values.tls.serverSecret) (empty .Values.tls.workerSecret) -}}
{{- fail "tls.serverSecret and tls.workerSecret belong together: set both, or set tls.existingSecret for one certificate for all pods" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.auth.serverSecret (not .Values.auth.existingSecret) (not (include "sluice.separateCertificates" .)) -}}
{{- fail "auth.serverSecret needs auth.existingSecret, the workers' Secret: with roles, each worker sends a token that the key roles of auth.serverSecret names. Only if servers and workers have separate certificates (tls.serverSecret and tls.workerSecret, or tls.certManager.issuerRef) can that key name certificates instead" -}}
{{- end -}}
{{- if and .Values.auth.observerSecret (not .Values.auth.serverSecret) -}}
{{- fail "auth.observerSecret needs auth.serverSecret, whose key roles says that its token is an observer's: without roles, every token may do everything" -}}
{{- end -}}
{{- if not (or .Values.tls.enabled .Values.auth.existingSecret .Values.auth.allowAnonymous) -}}
{{- fail "nothing says who may join the job: set auth.existingSecret (kubectl create secret generic NAME --from-literal=token=$(openssl rand -hex 32)), tls.enabled, or, on a network you trust, auth.allowAnonymous=true" -}}
{{- end -}}
{{- $workers := include "sluice.workerCount" . | int -}}
{{- with .Values.worker -}}
{{- if and .enabled .persistence.enabled (gt $workers 1) (not (has "ReadWriteMany" .persistence.accessModes)) -}}
{{- fail (printf "worker.persistence.accessModes is %v and there are %v workers: a volume of several workers must be ReadWriteMany" .persistence.accessModes $workers) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.server.persistence.enabled (not .Values.server.persistence.size) -}}
{{- fail "server.persistence.enabled needs server.persistence.size" -}}
{{- end -}}
{{- if .Values.relay.enabled -}}
{{- if not .Values.relay.racks -}}
{{- fail "relay.enabled needs relay.racks: an entry for each rack, such as {workers: 2, nodeSelector: {topology.kubernetes.io/zone: a}}" -}}
{{- end -}}
{{- if not (has (int .Values.worker.replicaCount) (list 1 $workers)) -}}
{{- fail (printf "worker.replicaCount is %v and the racks in relay.racks have %v workers: leave worker.replicaCount out, or make them equal" .Values.worker.replicaCount $workers) -}}
{{- end -}}
{{- else if .Values.relay.racks -}}
{{- fail "relay.racks is set and relay.enabled is false: set it to true, or remove relay.racks" -}}
{{- end -}}
{{- with .Values.networkPolicy.egress -}}
{{- if and .serverRules (not .restrictServers) -}}
{{- fail "networkPolicy.egress.serverRules is set and networkPolicy.egress.restrictServers is false: nothing limits the connections of servers, so remove the rules, or set restrictServers" -}}
{{- end -}}
{{- if and .workerRules (not .restrictWorkers) -}}
{{- fail "networkPolicy.egress.workerRules is set and networkPolicy.egress.restrictWorkers is false: nothing limits the connections of workers, so remove the rules, or set restrictWorkers" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.metrics.prometheusRule.enabled (not (.Files.Glob "rules/*.yaml")) -}}
{{- fail "metrics.prometheusRule.enabled: this version of the chart has no rules yet" -}}
{{- end -}}
{{- if and .Values.metrics.dashboards.enabled (not (.Files.Glob "dashboards/*.json")) -}}
{{- fail "metrics.dashboards.enabled: this version of the chart has no dashboards yet" -}}
{{- end -}}
{{- end -}}
