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
{{- define "sluice.workerClaim" -}}
{{- default (include "sluice.worker" .) .Values.worker.persistence.existingClaim -}}
{{- end -}}

{{/* The name under which shard 0 is reached: DNS knows it, and certificates name it. */}}
{{- define "sluice.domain" -}}{{ include "sluice.server" . }}.{{ .Release.Namespace }}.svc{{- end -}}
{{- define "sluice.coordinator" -}}{{ include "sluice.server" . }}-0.{{ include "sluice.domain" . }}:7070{{- end -}}

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

{{- define "sluice.tlsSecret" -}}
{{- default (printf "%s-tls" (include "sluice.fullname" .)) .Values.tls.existingSecret -}}
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

{{/* image: {image: .Values.server.image, root: $} */}}
{{- define "sluice.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ default .root.Chart.AppVersion .image.tag }}
{{- end -}}
{{- end -}}
