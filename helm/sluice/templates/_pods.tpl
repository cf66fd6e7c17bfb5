{{/* Settings of all pods. */}}
{{- define "sluice.podSecurity" -}}
serviceAccountName: {{ include "sluice.serviceAccount" . }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "sluice.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* Placement of pods. Argument: values such as .Values.server */}}
{{- define "sluice.placement" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Topology spread constraints: those of the values, or different hosts where possible.
Argument: {root: $, values: .Values.server, component: server} */}}
{{- define "sluice.spread" -}}
{{- if .values.topologySpreadConstraints }}
{{- toYaml .values.topologySpreadConstraints }}
{{- else -}}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "sluice.selector" .root | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
{{- end }}
{{- end -}}

{{/* Placement in a rack: its values added to those of all relays or workers. Argument: {values: .Values.worker, rack: one of relay.racks} */}}
{{- define "sluice.placementInRack" -}}
{{- $selector := merge dict (default dict .rack.nodeSelector) .values.nodeSelector -}}
{{- $tolerations := concat .values.tolerations (default list .rack.tolerations) -}}
{{- $affinity := default .values.affinity .rack.affinity -}}
{{- include "sluice.placement" (dict "priorityClassName" .values.priorityClassName "nodeSelector" $selector "tolerations" $tolerations "affinity" $affinity) -}}
{{- end -}}

{{/* Reports a job file that is wrong or does not match the release's sizes, before any process waits for others. */}}
{{- define "sluice.validate" -}}
- name: validate
  image: {{ include "sluice.image" (dict "image" .Values.server.image "root" .) }}
  imagePullPolicy: {{ .Values.server.image.pullPolicy }}
  command: [sluice, validate, /etc/sluice/job/job.yaml]
  args:
    - --expect=shards={{ .Values.server.replicaCount }}
    {{- if or .Values.worker.enabled .Values.relay.enabled }}
    - --expect=workers={{ include "sluice.workerCount" . }}
    {{- end }}
    {{- if .Values.relay.enabled }}
    - --expect=relays.workers={{ include "sluice.rackSizes" . }}
    {{- end }}
  terminationMessagePolicy: FallbackToLogsOnError
  {{- include "sluice.containerSecurity" . | nindent 2 }}
  resources:
    requests: {cpu: 10m, memory: 32Mi}
    limits: {memory: 128Mi}
  volumeMounts:
    - {name: job, mountPath: /etc/sluice/job, readOnly: true}
{{- end -}}

{{/* Ports and probes of servers and relays. */}}
{{- define "sluice.servingPorts" -}}
ports:
  - {name: grpc, containerPort: 7070}
  - {name: http, containerPort: 7071}
  - {name: health, containerPort: 7072}
startupProbe:
  httpGet: {path: /startupz, port: health}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: health}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 2
  timeoutSeconds: 5
{{- end -}}

{{/* Flags of servers and relays. */}}
{{- define "sluice.servingArgs" -}}
- --http-listen={{ .Values.server.bindAddress }}:7071
- --health-listen={{ .Values.server.bindAddress }}:7072
# A stopped pod comes back, because the job waits for it. After the job's end it stays up and answers requests.
- --supervised
{{- if .Values.tls.enabled }}
- --http-tls
{{- end }}
{{- include "sluice.logArgs" . }}
{{- include "sluice.transportArgs" (dict "root" . "secret" .Values.auth.existingSecret) }}
{{- if .Values.auth.serverSecret }}
- --role-file=/etc/sluice/auth/roles
{{- end }}
{{- if not (or .Values.tls.enabled .Values.auth.existingSecret) }}
- --allow-anonymous
{{- end }}
{{- end -}}

{{/* The folders of servers and relays. */}}
{{- define "sluice.servingMounts" -}}
- {name: job, mountPath: /etc/sluice/job, readOnly: true}
- {name: state, mountPath: /var/lib/sluice}
- {name: tmp, mountPath: /tmp}
{{- if include "sluice.sharedState" . }}
- {name: shared, mountPath: {{ .Values.worker.persistence.mountPath }}}
{{- end }}
{{- include "sluice.transportMounts" (dict "root" . "secret" (include "sluice.serverAuthSecret" .)) }}
{{- end -}}

{{/* Argument: {root: $, values: .Values.server or .Values.relay} */}}
{{- define "sluice.servingVolumes" -}}
- name: job
  configMap: {name: {{ include "sluice.jobConfigMap" .root }}}
- name: tmp
  emptyDir: {sizeLimit: {{ .values.tmp.sizeLimit }}}
{{- if not .values.persistence.enabled }}
- name: state
  emptyDir: {sizeLimit: {{ .values.persistence.size }}}
{{- end }}
{{- if include "sluice.sharedState" .root }}
- name: shared
  persistentVolumeClaim: {claimName: {{ include "sluice.workerClaim" .root }}}
{{- end }}
{{- include "sluice.transportVolumes" (dict "root" .root "tls" (include "sluice.serverTlsSecret" .root) "secret" (include "sluice.serverAuthSecret" .root)) }}
{{- end -}}

{{- define "sluice.stateClaim" -}}
- metadata:
    name: state
    labels:
      {{- include "sluice.selector" .root | nindent 6 }}
  spec:
    accessModes:
      {{- toYaml .persistence.accessModes | nindent 6 }}
    {{- with .persistence.storageClass }}
    storageClassName: {{ . }}
    {{- end }}
    resources: {requests: {storage: {{ .persistence.size }}}}
{{- end -}}

{{/* Not empty if checkpoints are on the workers' volume. */}}
{{- define "sluice.sharedState" -}}
{{- if and .Values.worker.persistence.enabled (eq "path" (dig "checkpoint" "store" "shards" .Values.job)) -}}shared{{- end -}}
{{- end -}}

{{/* Flags that servers, workers and `sluice status` share. Argument: {root: $, secret: name of the Secret with the process's token, or ""} */}}
{{- define "sluice.transportArgs" -}}
{{- if .root.Values.tls.enabled }}
- --tls-cert=/etc/sluice/tls/tls.crt
- --tls-key=/etc/sluice/tls/tls.key
- --tls-ca=/etc/sluice/tls/ca.crt
{{- end }}
{{- if .secret }}
- --token-file=/etc/sluice/auth/token
{{- end }}
{{- end -}}

{{/* Flags of servers and workers. */}}
{{- define "sluice.logArgs" -}}
{{- with .Values.log }}
- --log-format={{ .format }}
- --log-level={{ .level }}
{{- end }}
{{- end -}}

{{/* Argument: {root: $, secret: name of the Secret with the process's token or role file, or ""} */}}
{{- define "sluice.transportMounts" -}}
{{- if .root.Values.tls.enabled }}
- {name: tls, mountPath: /etc/sluice/tls, readOnly: true}
{{- end }}
{{- if .secret }}
- {name: auth, mountPath: /etc/sluice/auth, readOnly: true}
{{- end }}
{{- end -}}

{{/* Argument: {root: $, tls: name of the Secret with the process's certificate, secret: as for the mounts} */}}
{{- define "sluice.transportVolumes" -}}
{{- if .root.Values.tls.enabled }}
- name: tls
  secret: {secretName: {{ .tls }}, defaultMode: 0440}
{{- end }}
{{- if .secret }}
- name: auth
  secret: {secretName: {{ .secret }}, defaultMode: 0440}
{{- end }}
{{- end -}}
