{{/* What all pods have in common. */}}
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

{{/* Where pods go. values: .Values.server or .Values.worker */}}
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

{{/* Flags that servers, workers and `sluice status` share. */}}
{{- define "sluice.transportArgs" -}}
{{- if .Values.tls.enabled }}
- --tls-cert=/etc/sluice/tls/tls.crt
- --tls-key=/etc/sluice/tls/tls.key
- --tls-ca=/etc/sluice/tls/ca.crt
{{- end }}
{{- if .Values.auth.existingSecret }}
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

{{- define "sluice.transportMounts" -}}
{{- if .Values.tls.enabled }}
- {name: tls, mountPath: /etc/sluice/tls, readOnly: true}
{{- end }}
{{- if .Values.auth.existingSecret }}
- {name: auth, mountPath: /etc/sluice/auth, readOnly: true}
{{- end }}
{{- end -}}

{{- define "sluice.transportVolumes" -}}
{{- if .Values.tls.enabled }}
- name: tls
  secret: {secretName: {{ include "sluice.tlsSecret" . }}, defaultMode: 0440}
{{- end }}
{{- if .Values.auth.existingSecret }}
- name: auth
  secret: {secretName: {{ .Values.auth.existingSecret }}, defaultMode: 0440}
{{- end }}
{{- end -}}
