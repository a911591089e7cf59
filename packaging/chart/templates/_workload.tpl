{{- /*
A DaemonSet or Deployment: the manifest of kubernetes/, with what the values change in it.
root: the chart's own context; file: the manifest below files, or text: the manifest; values: those of this workload.
*/ -}}
{{- define "openperouter.workload" -}}
{{- $text := .text | default (.root.Files.Get (printf "files/%s" .file)) }}
{{- $object := $text | replace "openperouter-system" .root.Release.Namespace | fromYaml }}
{{- $pod := $object.spec.template.spec }}
{{- $container := first $pod.containers }}
{{- range concat $pod.containers ($pod.initContainers | default list) }}
{{- $_ := set . "image" ($.values.image | default $.root.Values.image) }}
{{- if $.root.Values.imagePullPolicy }}{{ $_ := set . "imagePullPolicy" $.root.Values.imagePullPolicy }}{{ end }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}{{ $_ := set $pod "imagePullSecrets" . }}{{ end }}
{{- $_ := set $container "resources" (mergeOverwrite $container.resources .values.resources) }}
{{- with .values.nodeSelector }}{{ $_ := set $pod "nodeSelector" . }}{{ end }}
{{- with .values.tolerations }}{{ $_ := set $pod "tolerations" . }}{{ end }}
{{- with .values.replicas }}{{ $_ := set $object.spec "replicas" . }}{{ end }}
{{- with .values.apiServer }}
{{- $args := list }}
{{- range $container.args }}{{ $args = append $args (ternary (printf "--api-server=%s" $.values.apiServer) . (hasPrefix "--api-server=" .)) }}{{ end }}
{{- $_ := set $container "args" $args }}
{{- end }}
{{- toYaml $object }}
{{- end }}
