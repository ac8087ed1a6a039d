package kinds

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

func messages(errs field.ErrorList) string {
	var list []string
	for _, e := range errs {
		list = append(list, e.Error())
	}
	return strings.Join(list, "\n")
}

// The messages are upstream's: users search for them, and tools match them.
// Proves S12.
//
//style:long a table of invalid objects, with the message on each
func TestInvalidObjectsAreRejected(t *testing.T) {
	const template = `template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}`
	podWith := func(container string) string { return "spec: {containers: [{name: c, image: i, " + container + "}]}" }
	podOf := func(volume string) string {
		return "spec: {volumes: [{name: v, " + volume + "}], containers: [{name: c, image: i}]}"
	}
	for name, c := range map[string]struct{ kind, given, want string }{
		"good pod":      {"Pod", podWith("ports: [{containerPort: 80}]"), ""},
		"no containers": {"Pod", `spec: {containers: []}`, "spec.containers: Required value"},
		"no image":      {"Pod", `spec: {containers: [{name: c}]}`, "spec.containers[0].image: Required value"},
		"no name":       {"Pod", `spec: {containers: [{image: i}]}`, "spec.containers[0].name: Required value"},
		"bad name":      {"Pod", `spec: {containers: [{name: C_1, image: i}]}`, `spec.containers[0].name: Invalid value: "C_1": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`},
		"same name":     {"Pod", `spec: {containers: [{name: c, image: i}], initContainers: [{name: c, image: i}]}`, `spec.containers[0].name: Duplicate value: "c"`},
		"port range": {"Pod", podWith("ports: [{containerPort: " +
			"70000}]"), "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and " +
			"65535, inclusive"},
		"port name":           {"Pod", podWith("ports: [{containerPort: 80, name: this-is-too-long}]"), `spec.containers[0].ports[0].name: Invalid value: "this-is-too-long": must be no more than 15 characters`},
		"protocol":            {"Pod", podWith("ports: [{containerPort: 80, protocol: tcp}]"), `spec.containers[0].ports[0].protocol: Unsupported value: "tcp": supported values: "SCTP", "TCP", "UDP"`},
		"restart policy":      {"Pod", `spec: {restartPolicy: Sometimes, containers: [{name: c, image: i}]}`, `spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "Never", "OnFailure"`},
		"request above limit": {"Pod", podWith("resources: {requests: {cpu: 2}, limits: {cpu: 1}}"), `spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1`},
		"negative request":    {"Pod", podWith("resources: {requests: {cpu: -1}}"), `spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0`},
		"env without name":    {"Pod", podWith("env: [{value: x}]"), "spec.containers[0].env[0].name: Required value"},
		"env from two":        {"Pod", podWith("env: [{name: a, value: x, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]"), `spec.containers[0].env[0].valueFrom: Invalid value: "": may not be specified when ` + "`value` is not empty"},
		"unknown mount":       {"Pod", podWith("volumeMounts: [{name: v, mountPath: /a}]"), `spec.containers[0].volumeMounts[0].name: Not found: "v"`},
		"mount twice":         {"Pod", "spec: {volumes: [{name: v}], containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /a}]}]}", `spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/a": must be unique`},
		"two sources":         {"Pod", "spec: {volumes: [{name: v, emptyDir: {}, hostPath: {path: /}}], containers: [{name: c, image: i}]}", `spec.volumes[0]: Forbidden: may not specify more than 1 volume type`},
		"back steps":          {"Pod", "spec: {volumes: [{name: v, hostPath: {path: /a/../b}}], containers: [{name: c, image: i}]}", `spec.volumes[0].hostPath.path: Invalid value: "/a/../b": must not contain '..'`},
		"probe without way": {"Pod", podWith("livenessProbe: {}"), "spec.containers[0].livenessProbe: Required " +
			"value: must specify a handler type"},
		"liveness twice": {"Pod", podWith("livenessProbe: {exec: {command: [a]}, successThreshold: " +
			"2}"), "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1"},
		"probe of init":   {"Pod", `spec: {containers: [{name: c, image: i}], initContainers: [{name: d, image: i, readinessProbe: {exec: {command: [a]}}}]}`, "spec.initContainers[0].readinessProbe: Forbidden: may not be set for init containers without restartPolicy=Always"},
		"toleration":      {"Pod", `spec: {tolerations: [{operator: Exists, value: x}], containers: [{name: c, image: i}]}`, "value must be empty when `operator` is 'Exists'"},
		"no name servers": {"Pod", `spec: {dnsPolicy: None, containers: [{name: c, image: i}]}`, "spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None"},
		"spread":          {"Pod", `spec: {topologySpreadConstraints: [{maxSkew: 0, topologyKey: a, whenUnsatisfiable: DoNotSchedule}], containers: [{name: c, image: i}]}`, "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero"},

		"projected twice": {"Pod", podOf("projected: {sources: [{secret: {name: a, items: [{key: k, path: p}]}}, " +
			"{downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}]}}]}"),
			`spec.volumes[0].projected: Invalid value: "p": conflicting duplicate paths`},
		"projected twice by one source": {"Pod", podOf("projected: {sources: [{configMap: {name: a, items: " +
			"[{key: k, path: p}, {key: l, path: p}]}}]}"),
			`spec.volumes[0].projected: Invalid value: "a": conflicting duplicate paths`},
		"projected side by side": {"Pod", podOf("projected: {sources: [{secret: {name: a}}, {secret: {name: b}}, " +
			"{configMap: {name: a, items: [{key: k, path: p}]}}]}"), ""},
		"name of a claim": {"Pod", "{metadata: {name: " + strings.Repeat("a", 252) + "}, " +
			podOf("ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: "+
				"{storage: 1Gi}}}}}") + "}", `spec.volumes[0].name: Invalid value: "v": PVC name "a`},
		"label of a file": {"Pod", podOf(`downwardAPI: {items: [{path: p, fieldRef: {fieldPath: ` +
			`"metadata.labels['a b']"}}]}`),
			`spec.volumes[0].downwardAPI.items[0].fieldRef: Invalid value: "a b": name part must consist of`},
		"annotation of a variable": {"Pod", podWith(`env: [{name: a, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['']"}}}]`), `env[0].valueFrom.fieldRef: Invalid value: "": name part must be non-empty`},
		"annotation in upper case": {"Pod", podWith(`env: [{name: a, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['Example.com/A']"}}}]`), ""},
		"label without an end":     {"Pod", podWith(`env: [{name: a, valueFrom: {fieldRef: {fieldPath: "metadata.labels['a"}}}]`), `env[0].valueFrom.fieldRef.fieldPath: Unsupported value: "metadata.labels['a"`},
		"subscript":                {"Pod", podWith(`env: [{name: a, valueFrom: {fieldRef: {fieldPath: "metadata.name['a']"}}}]`), `env[0].valueFrom.fieldRef.fieldPath: Unsupported value: "metadata.name['a']"`},
		"sleep past the grace period": {"Pod", "spec: {terminationGracePeriodSeconds: 5, containers: [{name: c, " +
			"image: i, lifecycle: {preStop: {sleep: {seconds: 6}}}}]}", "lifecycle.preStop.sleep: Invalid value: 6: " +
			"must be non-negative and less than terminationGracePeriodSeconds (5)"},
		"sleep below zero": {"Pod", podWith("lifecycle: {postStart: {sleep: {seconds: -1}}}"),
			"lifecycle.postStart.sleep: Invalid value: -1: must be non-negative"},
		"sleep to the end": {"Pod", podWith("lifecycle: {preStop: {sleep: {seconds: 30}}}"), ""},
		"resize restarts": {"Pod", "spec: {restartPolicy: Never, containers: [{name: c, image: i, resizePolicy: " +
			"[{resourceName: cpu, restartPolicy: RestartContainer}]}]}", "resizePolicy[0]: Invalid value: " +
			"\"RestartContainer\": must be 'NotRequired' when `restartPolicy` is 'Never'"},
		"half a page": {"Pod", podWith("resources: {limits: {hugepages-2Mi: 3Mi, cpu: 1}}"),
			`limits[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi`},
		"page of no size": {"Pod", podWith("resources: {limits: {hugepages-0: 2Mi, cpu: 1}}"),
			"is not positive integer multiple of hugepages-0"},
		"whole pages": {"Pod", podWith("resources: {limits: {hugepages-2Mi: 4Mi, cpu: 1}}"), ""},

		"good deployment": {"Deployment", "spec: {selector: {matchLabels: {a: b}}, " + template + "}", ""},
		"no selector":     {"Deployment", "spec: {" + template + "}", "spec.selector: Required value"},
		"selector differs": {"Deployment", "spec: {selector: {matchLabels: {a: c}}, " + template + "}",
			"spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`"},
		"empty selector": {"Deployment", "spec: {selector: {}, " + template + "}", "empty selector is invalid " +
			"for deployment"},
		"negative": {"Deployment", "spec: {replicas: -1, selector: {matchLabels: {a: b}}, " + template + "}",
			"spec.replicas: Invalid value: -1: must be greater than or equal to 0"},
		"no step": {"Deployment", "spec: {strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 0}}, " +
			"selector: {matchLabels: {a: b}}, " + template + "}", "may not be 0 when `maxSurge` is 0"},
		"never restarts": {"Deployment", "spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}", `spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"`},
		"deadline": {"Deployment", "spec: {minReadySeconds: 600, selector: {matchLabels: {a: b}}, " + template +
			"}", "spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds"},
		"indexes at once": {"Job", "spec: {completionMode: Indexed, completions: 100001, parallelism: 100001, " +
			"template: {spec: {restartPolicy: Never, containers: [{name: c, image: " +
			"i}]}}}", "spec.parallelism: Invalid value: 100001: must be less than or equal to 100000 when completion " +
			"mode is Indexed"},
		"many indexes": {"Job", "spec: {completionMode: Indexed, completions: 100001, backoffLimitPerIndex: " +
			"1, template: {spec: {restartPolicy: Never, containers: [{name: c, image: " +
			"i}]}}}", "spec.maxFailedIndexes: Required value: must be specified when completions is above 100000"},
		"many at once": {"Job", "spec: {completionMode: Indexed, completions: 100001, backoffLimitPerIndex: " +
			"1, maxFailedIndexes: 1, parallelism: 10001, template: {spec: {restartPolicy: Never, containers: [{name: " +
			"c, image: i}]}}}", "spec.parallelism: Invalid value: 10001: must be less than or equal to 10000 when " +
			"completions are above 100000 and used with backoff limit per index"},
		"many failed": {"Job", "spec: {completionMode: Indexed, completions: 100001, backoffLimitPerIndex: " +
			"1, maxFailedIndexes: 10001, template: {spec: {restartPolicy: Never, containers: [{name: c, image: " +
			"i}]}}}", "spec.maxFailedIndexes: Invalid value: 10001: must be less than or equal to 10000 when " +
			"completions are above 100000 and used with backoff limit per index"},
		"too many failed": {"Job", "spec: {completionMode: Indexed, completions: 200000, backoffLimitPerIndex: " +
			"1, maxFailedIndexes: 100001, template: {spec: {restartPolicy: Never, containers: [{name: c, image: " +
			"i}]}}}", "spec.maxFailedIndexes: Invalid value: 100001: must be less than or equal to 100000"},
		"more than there are": {"Job", "spec: {completionMode: Indexed, completions: 3, successPolicy: {rules: " +
			"[{succeededCount: 4}]}, template: {spec: {restartPolicy: Never, containers: [{name: c, image: " +
			"i}]}}}", "spec.successPolicy.rules[0].succeededCount: Invalid value: 4: must be less than or equal to 3 " +
			"(the number of specified completions)"},
		"more than are named": {"Job", "spec: {completionMode: Indexed, completions: 3, successPolicy: {rules: " +
			"[{succeededIndexes: 0-1, succeededCount: 3}]}, template: {spec: {restartPolicy: Never, containers: " +
			"[{name: c, image: i}]}}}", "spec.successPolicy.rules[0].succeededCount: Invalid value: 3: must be less " +
			"than or equal to 2 (the number of indexes in the specified succeededIndexes field)"},
		"job restarts": {"Job", "spec: {" + template + "}", `spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"`},
		"daemon set": {"DaemonSet", "spec: {updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 1}}, " +
			"selector: {matchLabels: {a: b}}, " + template + "}", "may not be set when maxUnavailable is non-zero"},
		"cron":            {"CronJob", "spec: {schedule: '61 * * * *', jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}", `spec.schedule: Invalid value: "61 * * * *": end of range (61) above maximum (59): 61`},
		"cron zone alone": {"CronJob", "spec: {schedule: 'TZ=UTC', jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}", `spec.schedule: Invalid value: "TZ=UTC": empty spec string`},
		"cron zone":       {"CronJob", "spec: {schedule: '@daily', timeZone: Moon/Sea, jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}", `spec.timeZone: Invalid value: "Moon/Sea": unknown time zone Moon/Sea`},

		"service ports":   {"Service", `spec: {}`, "spec.ports: Required value"},
		"headless":        {"Service", `spec: {clusterIP: None}`, ""},
		"unnamed ports":   {"Service", `spec: {ports: [{port: 80}, {port: 81, name: b}]}`, "spec.ports[0].name: Required value"},
		"node port":       {"Service", `spec: {ports: [{port: 80, nodePort: 30000}]}`, "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"},
		"external name":   {"Service", `spec: {type: ExternalName}`, "spec.externalName: Required value"},
		"config map key":  {"ConfigMap", `data: {"a b": c}`, `data[a b]: Invalid value: "a b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')`},
		"TLS secret":      {"Secret", `type: kubernetes.io/tls`, "data[tls.crt]: Required value\ndata[tls.key]: Required value"},
		"docker config":   {"Secret", `{type: kubernetes.io/dockerconfigjson, stringData: {.dockerconfigjson: "{a"}}`, `data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": invalid character 'a'`},
		"docker list":     {"Secret", `{type: kubernetes.io/dockercfg, stringData: {.dockercfg: "[]"}}`, `data[.dockercfg]: Invalid value: "<secret contents redacted>"`},
		"empty SSH key":   {"Secret", `{type: kubernetes.io/ssh-auth, stringData: {ssh-privatekey: ""}}`, `data[ssh-privatekey]: Required value`},
		"claim":           {"PersistentVolumeClaim", `spec: {accessModes: [ReadWriteOnce]}`, "spec.resources[storage]: Required value"},
		"volume":          {"PersistentVolume", `spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}}`, "spec: Required value: must specify a volume type"},
		"ingress":         {"Ingress", `spec: {rules: [{http: {paths: [{path: /, backend: {service: {name: a, port: {number: 80}}}}]}}]}`, "spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified"},
		"budget":          {"PodDisruptionBudget", `spec: {minAvailable: 1, maxUnavailable: 1}`, "minAvailable and maxUnavailable cannot be both set"},
		"role":            {"ClusterRole", `rules: [{resources: [pods], verbs: [get]}]`, "rules[0].apiGroups: Required value: resource rules must supply at least one api group"},
		"binding subject": {"ClusterRoleBinding", `{roleRef: {kind: ClusterRole, name: a}, subjects: [{kind: ServiceAccount, name: x}]}`, "subjects[0].namespace: Required value"},
		"priority":        {"PriorityClass", `value: 2000000000`, "value: Forbidden: maximum allowed value of a user defined priority is 1000000000"},
		"autoscaler":      {"HorizontalPodAutoscaler", `spec: {minReplicas: 3, maxReplicas: 2, scaleTargetRef: {kind: Deployment, name: d}}`, "spec.maxReplicas: Invalid value: 2: must be greater than or equal to `minReplicas`"},
		"to zero":         {"HorizontalPodAutoscaler", `spec: {minReplicas: 0, maxReplicas: 2, scaleTargetRef: {kind: Deployment, name: d}, metrics: [{type: External, external: {metric: {name: queue}, target: {type: Value, value: 1}}}]}`, ""},
		"to zero, blind":  {"HorizontalPodAutoscaler", `spec: {minReplicas: 0, maxReplicas: 2, scaleTargetRef: {kind: Deployment, name: d}}`, "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas"},
		"below zero":      {"HorizontalPodAutoscaler", `spec: {minReplicas: -1, maxReplicas: 2, scaleTargetRef: {kind: Deployment, name: d}}`, "spec.minReplicas: Invalid value: -1: must be greater than or equal to 0"},
		"peer":            {"NetworkPolicy", `spec: {ingress: [{from: [{}]}]}`, "spec.ingress[0].from[0]: Required value: must specify a peer"},
		"taints":          {"Node", `spec: {taints: [{key: a, effect: Never}]}`, `spec.taints[0].effect: Unsupported value: "Never": supported values: "NoExecute", "NoSchedule", "PreferNoSchedule"`},
		"slice":           {"EndpointSlice", `{addressType: IPv4, endpoints: [{addresses: ["::1"]}]}`, "must be an IPv4 address"},
		"event elsewhere": {"Event", `{metadata: {namespace: a}, involvedObject: {namespace: b}}`, `involvedObject.namespace: Invalid value: "b": does not match event.namespace`},
	} {
		k := kindOf(t, c.kind)
		obj := read(t, k, c.given)
		if k.PrepareCreate != nil {
			k.PrepareCreate(obj)
		}
		if got := messages(k.Validate(obj)); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

func TestUpdatesKeepImmutableFields(t *testing.T) {
	const pod = `spec: {nodeName: n, tolerations: [{key: a, operator: Exists}], containers: [{name: c, image: i}]}`
	const deployment = "spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: " +
		"{containers: [{name: c, image: i}]}}}"
	for name, c := range map[string]struct{ kind, old, change, want string }{
		"image":             {"Pod", pod, `image: i -> image: j`, ""},
		"image with spaces": {"Pod", pod, `image: i -> image: " j"`, "spec.containers[0].image: Invalid value: \" j\": must not have leading or trailing whitespace"},
		"init image":        {"Pod", strings.Replace(pod, "containers: [", "initContainers: [{name: d, image: k}], containers: [", 1), `image: k -> image: ""`, "spec.initContainers[0].image: Required value"},
		"command":           {"Pod", pod, `image: i -> image: i, command: [x]`, "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`"},
		"more tolerations":  {"Pod", pod, `Exists} -> Exists}, {key: b, operator: Exists}`, ""},
		"fewer":             {"Pod", pod, `{key: a, operator: Exists} -> `, "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"},
		"more containers":   {"Pod", pod, `image: i} -> image: i}, {name: d, image: i}`, "spec: Forbidden: pod updates may not add or remove containers"},
		"node":              {"Pod", pod, `nodeName: n -> nodeName: m`, "spec: Forbidden: pod updates may not change"},
		"new gate":          {"Pod", pod, `nodeName: n -> schedulingGates: [{name: g}]`, "spec.schedulingGates[0]: Forbidden: only deletion is allowed, but found new scheduling gate 'g'"},
		"selector":          {"Deployment", deployment, `{a: b} -> {a: c}`, "spec.selector: Invalid value"},
		"template":          {"Deployment", deployment, `image: i -> image: j`, ""},
		"cluster address":   {"Service", `spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 80}]}`, `10.0.0.1 -> 10.0.0.2`, "spec.clusterIPs[0]: Invalid value: [\"10.0.0.2\"]: may not change once set"},
		"address left out":  {"Service", `spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 80}]}`, `clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], -> `, ""},
		"to cluster IP":     {"Service", `spec: {type: NodePort, clusterIP: 10.0.0.1, ports: [{port: 80, nodePort: 30000}]}`, `NodePort, -> ClusterIP,`, ""},
		"immutable map":     {"ConfigMap", `{immutable: true, data: {a: b}}`, `a: b -> a: c`, "data: Forbidden: field is immutable when `immutable` is set"},
		"secret type":       {"Secret", `type: a`, `type: a -> type: b`, "type: Invalid value"},
		"role reference":    {"RoleBinding", `roleRef: {kind: Role, name: a}`, `name: a -> name: b`, "cannot change roleRef"},
		"claim shrinks":     {"PersistentVolumeClaim", `{spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}}`, `2Gi -> 1Gi`, "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"},
		"completions":       {"Job", `spec: {manualSelector: true, selector: {matchLabels: {a: b}}, completions: 1, template: {metadata: {labels: {a: b}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}`, `completions: 1 -> completions: 2`, "spec.completions: Invalid value: 2: field is immutable"},
		"stateful selector": {"StatefulSet", strings.Replace(deployment, "spec: {", "spec: {serviceName: a, ", 1), `serviceName: a -> serviceName: b`, "spec: Forbidden: updates to statefulset spec for fields other than"},
	} {
		k := kindOf(t, c.kind)
		from, to, _ := strings.Cut(c.change, " -> ")
		changed := strings.Replace(c.old, from, to, -1)
		if strings.HasPrefix(from, "{a: b}") { // only the selector
			changed = strings.Replace(c.old, "matchLabels: "+from, "matchLabels: "+to, 1)
		}
		old, obj := read(t, k, c.old), read(t, k, changed)
		if k.PrepareUpdate != nil {
			k.PrepareUpdate(obj, old)
		}
		if got := messages(k.ValidateUpdate(obj, old)); (got == "") != (c.want == "") ||
			!strings.Contains(got, c.want) {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

func FuzzPodsNeverCrashValidation(f *testing.F) {
	f.Add([]byte(`spec: {containers: [{name: c, image: i, ports: [{containerPort: 80}]}], volumes: [{name: v}]}`))
	f.Add([]byte(`spec: {affinity: {podAntiAffinity: {}}, topologySpreadConstraints: [{}]}`))
	var k *Kind
	for _, one := range All() {
		if one.Resource == "pods" {
			k = one
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		obj := k.New()
		if yaml.Unmarshal(text, obj) != nil {
			return
		}
		k.Default(obj)
		var old runtime.Object = obj.DeepCopyObject()
		k.PrepareCreate(obj)
		k.Validate(obj)
		k.ValidateUpdate(obj, old)
		k.Row(obj)
	})
}
