# SPDX-License-Identifier: Apache-2.0
# Workers that do not belong to the release train with its shards.

install hand --set worker.enabled=false,worker.replicaCount=2,job.steps=200,server.persistence.enabled=false
for rank in 0 1; do k apply -f - >/dev/null <<YAML
apiVersion: v1
kind: Pod
metadata: {name: hand-$rank, labels: {app.kubernetes.io/name: sluice, app.kubernetes.io/instance: hand, app.kubernetes.io/component: worker}}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  securityContext: {runAsNonRoot: true, runAsUser: 10001, fsGroup: 10001, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: worker
      image: localhost/sluice-fashion:$version
      args: [--job=/job/job.yaml, --coordinator=hand-sluice-server-0.hand-sluice-server.$ns.svc:7070, --rank=$rank, --supervised,
             --token-file=/auth/token, --tls-cert=/tls/tls.crt, --tls-key=/tls/tls.key, --tls-ca=/tls/ca.crt]
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
      resources: {requests: {cpu: 50m, memory: 256Mi}, limits: {memory: 2Gi}}
      volumeMounts: [{name: job, mountPath: /job}, {name: auth, mountPath: /auth}, {name: tls, mountPath: /tls}]
  volumes:
    - {name: job, configMap: {name: hand-sluice-job}}
    - {name: auth, secret: {secretName: hand-token, defaultMode: 0440}}
    - {name: tls, secret: {secretName: hand-tls, defaultMode: 0440}}
YAML
done
for rank in 0 1; do k wait --for=jsonpath='{.status.phase}'=Succeeded --timeout=300s "pod/hand-$rank" >/dev/null; done
h uninstall hand --wait >/dev/null
say "workers started by hand have trained"
