{{/* The spec of the workers' Job, as the values say it. Nothing in it may follow the chart's version: a Job cannot change. */}}
{{- define "sluice.workerSpec" -}}
{{- $worker := .Values.worker -}}
completionMode: Indexed
completions: {{ $worker.replicaCount }}
parallelism: {{ $worker.replicaCount }}
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
      {{- include "sluice.selector" . | nindent 6 }}
      app.kubernetes.io/component: worker
      {{- with merge dict $worker.podLabels .Values.commonLabels }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
  spec:
    restartPolicy: Never
    {{- include "sluice.podSecurity" . | nindent 4 }}
    terminationGracePeriodSeconds: {{ $worker.terminationGracePeriodSeconds }}
    {{- with $worker.runtimeClassName }}
    runtimeClassName: {{ . }}
    {{- end }}
    {{- include "sluice.placement" $worker | nindent 4 }}
    {{- with $worker.topologySpreadConstraints }}
    topologySpreadConstraints:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    containers:
      - name: worker
        image: {{ include "sluice.image" (dict "image" $worker.image "root" $) }}
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
          {{- if .Values.metrics.podMonitor.enabled }}
          - --metrics-listen={{ .Values.server.bindAddress }}:7072
          {{- if .Values.tls.enabled }}
          - --metrics-tls
          {{- end }}
          {{- end }}
          {{- include "sluice.logArgs" . | nindent 10 }}
          {{- include "sluice.transportArgs" . | nindent 10 }}
          {{- with $worker.args }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        {{- end }}
        {{- if .Values.metrics.podMonitor.enabled }}
        ports:
          - {name: metrics, containerPort: 7072}
        {{- end }}
        env:
          - {name: SLUICE_JOB, value: /etc/sluice/job/job.yaml}
          - {name: SLUICE_COORDINATOR, value: {{ include "sluice.coordinator" . | quote }}}
          - {name: WORLD_SIZE, value: {{ $worker.replicaCount | quote }}}
          {{- with $worker.extraEnv }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        {{- with $worker.envFrom }}
        envFrom:
          {{- toYaml . | nindent 10 }}
        {{- end }}
        terminationMessagePolicy: FallbackToLogsOnError
        {{- include "sluice.containerSecurity" . | nindent 8 }}
        resources:
          {{- toYaml $worker.resources | nindent 10 }}
        volumeMounts:
          - {name: job, mountPath: /etc/sluice/job, readOnly: true}
          - {name: tmp, mountPath: /tmp}
          {{- if $worker.shm.sizeLimit }}
          - {name: shm, mountPath: /dev/shm}
          {{- end }}
          {{- if $worker.persistence.enabled }}
          - {name: shared, mountPath: {{ $worker.persistence.mountPath }}}
          {{- end }}
          {{- include "sluice.transportMounts" . | nindent 10 }}
          {{- with $worker.extraVolumeMounts }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
    volumes:
      - name: job
        configMap: {name: {{ include "sluice.jobConfigMap" . }}}
      - name: tmp
        emptyDir: {}
      {{- if $worker.shm.sizeLimit }}
      - name: shm
        emptyDir: {medium: Memory, sizeLimit: {{ $worker.shm.sizeLimit }}}
      {{- end }}
      {{- if $worker.persistence.enabled }}
      - name: shared
        persistentVolumeClaim: {claimName: {{ include "sluice.workerClaim" . }}}
      {{- end }}
      {{- include "sluice.transportVolumes" . | nindent 6 }}
      {{- with $worker.extraVolumes }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
{{- end -}}

{{/* JobSet and Job are of different groups and else alike. */}}
{{- define "sluice.workerApi" -}}
{{- eq .Values.worker.kind "JobSet" | ternary "jobset.x-k8s.io/v1alpha2" "batch/v1" -}}
{{- end -}}

{{/* With restartOnUpgrade the name follows the spec, so that another spec is another Job and the old one goes. */}}
{{- define "sluice.workerName" -}}
{{- if .Values.worker.restartOnUpgrade -}}
{{- printf "%s-%s" (include "sluice.worker" .) (printf "%s%s" (include "sluice.workerSpec" .) (include "sluice.job" .) | sha256sum | trunc 8) -}}
{{- else -}}
{{- include "sluice.worker" . -}}
{{- end -}}
{{- end -}}

{{/* What the cluster has of this release's workers; in an installation and without a cluster nothing. */}}
{{- define "sluice.installedSpec" -}}
{{- if and .Release.IsUpgrade (not .Values.worker.restartOnUpgrade) -}}
{{- $installed := lookup (include "sluice.workerApi" .) .Values.worker.kind .Release.Namespace (include "sluice.worker" .) -}}
{{- dig "metadata" "annotations" "sluice.dev/spec" "" (default dict $installed) -}}
{{- end -}}
{{- end -}}

{{/* Not empty: this release's workers were there and are not any more, since they had finished. */}}
{{- define "sluice.workersAreGone" -}}
{{- if and .Release.IsUpgrade (not .Values.worker.restartOnUpgrade) -}}
{{- $servers := lookup "apps/v1" "StatefulSet" .Release.Namespace (include "sluice.server" .) -}}
{{- $had := dig "metadata" "annotations" "sluice.dev/workers" "" (default dict $servers) -}}
{{- $has := lookup (include "sluice.workerApi" .) .Values.worker.kind .Release.Namespace (include "sluice.worker" .) -}}
{{- if and (eq $had (include "sluice.worker" .)) (not $has) -}}gone{{- end -}}
{{- end -}}
{{- end -}}

{{/* Processes of two job files do not work together: what counts cannot change under workers that stay. */}}
{{- define "sluice.checkUpgrade" -}}
{{- if and .Release.IsUpgrade .Values.worker.enabled (not .Values.worker.restartOnUpgrade) -}}
{{- $installed := lookup "v1" "ConfigMap" .Release.Namespace (include "sluice.jobConfigMap" .) -}}
{{- with dig "data" "job.yaml" "" (default dict $installed) -}}
{{- $free := list "output" "scalars_every" "device" -}}
{{- $old := fromYaml . -}}
{{- $new := include "sluice.job" $ | fromYaml -}}
{{- range $key := keys $old $new | uniq | sortAlpha -}}
{{- if and (not (has $key $free)) (ne (get $old $key | toJson) (get $new $key | toJson)) -}}
{{- fail (printf "job.%s cannot change while the job runs (it was %s, it is to be %s): workers that stay have the old file. Set worker.restartOnUpgrade=true to start all anew with the new one (docs/kubernetes.md, Changing the job)" $key (get $old $key | toJson) (get $new $key | toJson)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
