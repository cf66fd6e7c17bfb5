{{- define "sluice.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "sluice.server" -}}{{ include "sluice.fullname" . }}-server{{- end -}}
{{- define "sluice.worker" -}}{{ include "sluice.fullname" . }}-worker{{- end -}}
{{- define "sluice.relay" -}}{{ include "sluice.fullname" . }}-relay{{- end -}}
{{- define "sluice.workerClaim" -}}
{{- default (include "sluice.worker" .) .Values.worker.persistence.existingClaim -}}
{{- end -}}

{{/* The domain of the servers' addresses, as in DNS and in certificates. */}}
{{- define "sluice.domain" -}}{{ include "sluice.server" . }}.{{ .Release.Namespace }}.svc{{- end -}}
{{- define "sluice.coordinator" -}}{{ include "sluice.server" . }}-0.{{ include "sluice.domain" . }}:7070{{- end -}}

{{/* All relays share one Service; the relay of rack K is pod 0 of StatefulSet K. Argument: {root: $, rack: "K"} */}}
{{- define "sluice.relayDomain" -}}{{ include "sluice.relay" . }}.{{ .Release.Namespace }}.svc{{- end -}}
{{- define "sluice.relayOfRack" -}}{{ include "sluice.relay" .root }}-{{ .rack }}{{- end -}}
{{- define "sluice.relayAddress" -}}{{ include "sluice.relayOfRack" . }}-0.{{ include "sluice.relayDomain" .root }}:7070{{- end -}}

{{/* The racks' numbers as strings, in a JSON array. Without relays it has one entry, "". */}}
{{- define "sluice.racks" -}}
{{- if .Values.relay.enabled -}}{{- until (len .Values.relay.racks) | toStrings | toJson -}}{{- else -}}[""]{{- end -}}
{{- end -}}

{{/* The racks' sizes as a JSON array. */}}
{{- define "sluice.rackSizes" -}}
{{- $sizes := list -}}
{{- range .Values.relay.racks -}}{{- $sizes = append $sizes (int .workers) -}}{{- end -}}
{{- toJson $sizes -}}
{{- end -}}

{{/* Number of workers of the whole job. */}}
{{- define "sluice.workerCount" -}}
{{- $count := int .Values.worker.replicaCount -}}
{{- if .Values.relay.enabled -}}
{{- $count = 0 -}}
{{- range .Values.relay.racks -}}{{- $count = add $count (int .workers) -}}{{- end -}}
{{- end -}}
{{- $count -}}
{{- end -}}

{{- define "sluice.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "sluice.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "sluice.jobConfigMap" -}}
{{- default (printf "%s-job" (include "sluice.fullname" .)) .Values.existingJobConfigMap -}}
{{- end -}}

{{/* Not empty if workers have another certificate than servers and relays. */}}
{{- define "sluice.separateCertificates" -}}
{{- if and .Values.tls.enabled (not .Values.tls.existingSecret) -}}separate{{- end -}}
{{- end -}}

{{/* Secrets with the certificates of servers and relays, and of workers. */}}
{{- define "sluice.serverTlsSecret" -}}
{{- coalesce .Values.tls.existingSecret .Values.tls.serverSecret (printf "%s-tls" (include "sluice.fullname" .)) -}}
{{- end -}}
{{- define "sluice.workerTlsSecret" -}}
{{- coalesce .Values.tls.existingSecret .Values.tls.workerSecret (printf "%s-tls" (include "sluice.worker" .)) -}}
{{- end -}}

{{/* Secret with the token of servers and relays, and their role file. */}}
{{- define "sluice.serverAuthSecret" -}}
{{- default .Values.auth.existingSecret .Values.auth.serverSecret -}}
{{- end -}}

{{- define "sluice.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sluice.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "sluice.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Argument: {image: .Values.server.image, root: $} */}}
{{- define "sluice.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ default .root.Chart.AppVersion .image.tag }}
{{- end -}}
{{- end -}}
