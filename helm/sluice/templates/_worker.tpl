{{/* The spec of the Job of all workers, or of one rack's, from the values. Argument: {root: $, rack: "K" or ""}. It must not depend on
the chart's version, because a Job cannot change. */}}
{{- define "sluice.workerSpec" -}}
{{- $root := .root -}}
{{- $worker := $root.Values.worker -}}
{{- $rack := .rack -}}
{{- $rackValues := dict "workers" $worker.replicaCount -}}
{{- if $rack -}}{{- $rackValues = index $root.Values.relay.racks (int $rack) -}}{{- end -}}
completionMode: Indexed
completions: {{ $rackValues.workers }}
parallelism: {{ $rackValues.workers }}
backoffLimitPerIndex: {{ $worker.backoffLimitPerIndex }}
# One rank that cannot go on is all that it takes.
maxFailedIndexes: 0
# Two pods of one rank would fight over it.
podReplacementPolicy: Failed
{{- if eq $worker.kind "Job" }}
ttlSecondsAfterFinished: {{ $worker.ttlSecondsAfterFinished }}
{{- end }}
podFailurePolicy:
  rules:
    # A drained or lost node is nobody's fault.
    - action: Ignore
      onPodConditions: [{type: DisruptionTarget, status: "True"}]
    # Wrong flags or job file: starting again would not help.
    - action: FailJob
      onExitCodes: {containerName: worker, operator: In, values: [2]}
template:
  metadata:
    {{- with $worker.podAnnotations }}
    annotations:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    labels:
      {{- include "sluice.selector" $root | nindent 6 }}
      app.kubernetes.io/component: worker
      {{- if $rack }}
      sluice.dev/rack: {{ $rack | quote }}
      {{- end }}
      {{- with merge dict $worker.podLabels $root.Values.commonLabels }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
  spec:
    restartPolicy: Never
    {{- include "sluice.podSecurity" $root | nindent 4 }}
    terminationGracePeriodSeconds: {{ $worker.terminationGracePeriodSeconds }}
    {{- with $worker.runtimeClassName }}
    runtimeClassName: {{ . }}
    {{- end }}
    {{- include "sluice.placementInRack" (dict "values" $worker "rack" $rackValues) | nindent 4 }}
    {{- with default $worker.topologySpreadConstraints $rackValues.topologySpreadConstraints }}
    topologySpreadConstraints:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    containers:
      - name: worker
        image: {{ include "sluice.image" (dict "image" $worker.image "root" $root) }}
        imagePullPolicy: {{ $worker.image.pullPolicy }}
        {{- if $worker.command }}
        command:
          {{- toYaml $worker.command | nindent 10 }}
        {{- with $worker.args }}
        args:
          {{- toYaml . | nindent 10 }}
        {{- end }}
        {{- else }}
        command: [sluice-worker]
        args:
          - --job=$(SLUICE_JOB)
          - --coordinator=$(SLUICE_COORDINATOR)
          - --threads={{ $worker.threads }}
          - --supervised
          {{- if $rack }}
          - --relay={{ $rack }}
          {{- end }}
          {{- if $root.Values.metrics.podMonitor.enabled }}
          - --http-listen={{ $root.Values.server.bindAddress }}:7072
          {{- if $root.Values.tls.enabled }}
          - --http-tls
          {{- end }}
          {{- end }}
          {{- include "sluice.logArgs" $root | nindent 10 }}
          {{- include "sluice.transportArgs" (dict "root" $root "secret" $root.Values.auth.existingSecret) | nindent 10 }}
          {{- with $worker.args }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        {{- end }}
        {{- if $root.Values.metrics.podMonitor.enabled }}
        ports:
          - {name: metrics, containerPort: 7072}
        {{- end }}
        env:
          - {name: SLUICE_JOB, value: /etc/sluice/job/job.yaml}
          - {name: SLUICE_COORDINATOR, value: {{ (eq $rack "" | ternary (include "sluice.coordinator" $root) (include "sluice.relayAddress" .)) | quote }}}
          - {name: WORLD_SIZE, value: {{ $rackValues.workers | quote }}}
          {{- if $rack }}
          - {name: SLUICE_RELAY, value: {{ $rack | quote }}}
          {{- end }}
          {{- with $worker.extraEnv }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        {{- with $worker.envFrom }}
        envFrom:
          {{- toYaml . | nindent 10 }}
        {{- end }}
        terminationMessagePolicy: FallbackToLogsOnError
        {{- include "sluice.containerSecurity" $root | nindent 8 }}
        resources:
          {{- toYaml (default $worker.resources $rackValues.resources) | nindent 10 }}
        volumeMounts:
          - {name: job, mountPath: /etc/sluice/job, readOnly: true}
          - {name: tmp, mountPath: /tmp}
          {{- if $worker.shm.sizeLimit }}
          - {name: shm, mountPath: /dev/shm}
          {{- end }}
          {{- if $worker.persistence.enabled }}
          - {name: shared, mountPath: {{ $worker.persistence.mountPath }}}
          {{- end }}
          {{- include "sluice.transportMounts" (dict "root" $root "secret" $root.Values.auth.existingSecret) | nindent 10 }}
          {{- with $worker.extraVolumeMounts }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
    volumes:
      - name: job
        configMap: {name: {{ include "sluice.jobConfigMap" $root }}}
      - name: tmp
        emptyDir: {sizeLimit: {{ $worker.tmp.sizeLimit }}}
      {{- if $worker.shm.sizeLimit }}
      - name: shm
        emptyDir: {medium: Memory, sizeLimit: {{ $worker.shm.sizeLimit }}}
      {{- end }}
      {{- if $worker.persistence.enabled }}
      - name: shared
        persistentVolumeClaim: {claimName: {{ include "sluice.workerClaim" $root }}}
      {{- end }}
      {{- include "sluice.transportVolumes" (dict "root" $root "tls" (include "sluice.workerTlsSecret" $root) "secret" $root.Values.auth.existingSecret) | nindent 6 }}
      {{- with $worker.extraVolumes }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
{{- end -}}

{{/* JobSet and Job differ in their API group and are otherwise alike. */}}
{{- define "sluice.workerApi" -}}
{{- eq .Values.worker.kind "JobSet" | ternary "jobset.x-k8s.io/v1alpha2" "batch/v1" -}}
{{- end -}}

{{/* With restartOnUpgrade the name depends on the spec, so that a changed spec makes a new Job and removes the old one. */}}
{{- define "sluice.workerName" -}}
{{- $name := include "sluice.workersOfRack" . -}}
{{- if .root.Values.worker.restartOnUpgrade -}}
{{- $hash := printf "%s%s" (include "sluice.workerSpec" .) (include "sluice.job" .root) | sha256sum -}}
{{/* A pod's name has at most 63 characters for this name and the rank. */}}
{{- printf "%s-%s" $name (trunc (eq .rack "" | ternary 8 6) $hash) -}}
{{- else -}}
{{- $name -}}
{{- end -}}
{{- end -}}

{{- define "sluice.workersOfRack" -}}
{{- include "sluice.worker" .root -}}{{- if .rack -}}-{{ .rack }}{{- end -}}
{{- end -}}

{{/* The spec of this release's workers in the cluster. Empty in an installation and without a cluster. Argument: {root: $, rack: "K" or ""} */}}
{{- define "sluice.installedSpec" -}}
{{- $root := .root -}}
{{- if and $root.Release.IsUpgrade (not $root.Values.worker.restartOnUpgrade) -}}
{{- $installed := lookup (include "sluice.workerApi" $root) $root.Values.worker.kind $root.Release.Namespace (include "sluice.workersOfRack" .) -}}
{{- dig "metadata" "annotations" "sluice.dev/spec" "" (default dict $installed) -}}
{{- end -}}
{{- end -}}

{{/* Not empty if these workers have finished and were removed. Argument: {root: $, rack: "K" or ""} */}}
{{- define "sluice.workersAreGone" -}}
{{- $root := .root -}}
{{- if and $root.Release.IsUpgrade (not $root.Values.worker.restartOnUpgrade) -}}
{{- $noted := eq .rack "" | ternary (include "sluice.server" $root) (include "sluice.relayOfRack" .) -}}
{{- $set := lookup "apps/v1" "StatefulSet" $root.Release.Namespace $noted -}}
{{- $had := dig "metadata" "annotations" "sluice.dev/workers" "" (default dict $set) -}}
{{- $name := include "sluice.workersOfRack" . -}}
{{- $has := lookup (include "sluice.workerApi" $root) $root.Values.worker.kind $root.Release.Namespace $name -}}
{{- if and (eq $had $name) (not $has) -}}gone{{- end -}}
{{- end -}}
{{- end -}}

{{/* Processes with different job files do not work together, so relevant keys cannot change while the workers stay. */}}
{{- define "sluice.checkUpgrade" -}}
{{- if and .Release.IsUpgrade .Values.worker.enabled (not .Values.worker.restartOnUpgrade) -}}
{{- $installed := lookup "v1" "ConfigMap" .Release.Namespace (include "sluice.jobConfigMap" .) -}}
{{- with dig "data" "job.yaml" "" (default dict $installed) -}}
{{- $free := list "output" "log_interval" "scalars_every" "device" "gpus_per_worker" "encode_location" "encode_on" -}}
{{- $old := fromYaml . -}}
{{- $new := include "sluice.job" $ | fromYaml -}}
{{- range $key := keys $old $new | uniq | sortAlpha -}}
{{- if and (not (has $key $free)) (ne (get $old $key | toJson) (get $new $key | toJson)) -}}
{{- fail (printf "job.%s cannot change while the job runs (it was %s and would become %s), because running workers keep the old file. Set worker.restartOnUpgrade=true to restart all with the new one (docs/kubernetes.md, Changing the job)" $key (get $old $key | toJson) (get $new $key | toJson)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
