package kinds

import (
	"strings"
	"testing"
)

const (
	boundClaim   = `{spec: {accessModes: [ReadWriteOnce], volumeName: v, storageClassName: s, volumeAttributesClassName: gold, resources: {requests: {storage: 3Gi}}}, status: {phase: Bound, capacity: {storage: 1Gi}, currentVolumeAttributesClassName: gold}}`
	freeClaim    = `{spec: {accessModes: [ReadWriteOnce], volumeAttributesClassName: gold, resources: {requests: {storage: 2Gi}}}}`
	csiVolume    = `{spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, volumeAttributesClassName: gold, csi: {driver: a.b, volumeHandle: h}}}`
	zonedVolume  = `{spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, csi: {driver: a.b, volumeHandle: h}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: failure-domain.beta.kubernetes.io/zone, operator: In, values: [a]}]}]}}}}`
	dualService  = `spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1, "fd00::1"], ipFamilies: [IPv4, IPv6], ipFamilyPolicy: RequireDualStack, ports: [{port: 80}]}`
	balancer1    = `spec: {type: LoadBalancer, loadBalancerClass: a.b/c, externalTrafficPolicy: Local, healthCheckNodePort: 30001, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 80, nodePort: 30000}]}`
	indexedJob   = `spec: {manualSelector: true, selector: {matchLabels: {a: b}}, completionMode: Indexed, completions: 3, parallelism: 3, successPolicy: {rules: [{succeededCount: 1}]}, template: {metadata: {labels: {a: b}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}`
	suspendedJob = `spec: {suspend: true, manualSelector: true, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {restartPolicy: Never, affinity: {nodeAffinity: {}}, containers: [{name: c, image: i}]}}}`
	stoppedJob   = `{spec: {suspend: true, manualSelector: true, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {restartPolicy: Never, initContainers: [{name: i, image: i}], containers: [{name: c, image: i}]}}}, status: {active: 0, startTime: "2026-01-03T00:00:00Z", conditions: [{type: Suspended, status: "True"}]}}`
	gatedPod     = `spec: {schedulingGates: [{name: g}], nodeSelector: {a: b}, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}, containers: [{name: c, image: i}]}`
)

// Changes of immutable fields are rejected with upstream's messages, and other changes are accepted.
// Proves S12.
func TestImmutableFieldsAreRejected(t *testing.T) {
	for name, c := range map[string]struct{ kind, old, change, want string }{
		"a bound claim grows":               {"PersistentVolumeClaim", boundClaim, `3Gi -> 4Gi`, ""},
		"a bound claim asks for less again": {"PersistentVolumeClaim", boundClaim, `3Gi -> 2Gi`, ""},
		"a volume does not shrink":          {"PersistentVolumeClaim", boundClaim, `3Gi -> 1Gi`, "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"},
		"a free claim does not grow":        {"PersistentVolumeClaim", freeClaim, `2Gi -> 3Gi`, "spec: Forbidden: spec is immutable after creation except resources.requests"},
		"other attributes":                  {"PersistentVolumeClaim", boundClaim, `volumeAttributesClassName: gold, -> volumeAttributesClassName: iron,`, ""},
		"other attributes of a free claim":  {"PersistentVolumeClaim", freeClaim, `gold -> iron`, "spec: Forbidden: spec is immutable"},
		"no attributes":                     {"PersistentVolumeClaim", boundClaim, `volumeAttributesClassName: gold, -> `, "spec.volumeAttributesClassName: Forbidden: update to nil is forbidden when status.currentVolumeAttributesClassName is not nil"},
		"empty attributes":                  {"PersistentVolumeClaim", boundClaim, `volumeAttributesClassName: gold, -> volumeAttributesClassName: "", `, "spec.volumeAttributesClassName: Forbidden: update to empty string is forbidden"},
		"another class":                     {"PersistentVolumeClaim", boundClaim, `storageClassName: s -> storageClassName: t`, "spec: Forbidden: spec is immutable"},
		"a class, late":                     {"PersistentVolumeClaim", freeClaim, `volumeAttributesClassName -> storageClassName: s, volumeAttributesClassName`, ""},
		"another volume":                    {"PersistentVolumeClaim", boundClaim, `volumeName: v -> volumeName: w`, "spec: Forbidden: spec is immutable"},
		"another mode of the claim":         {"PersistentVolumeClaim", boundClaim, `volumeName: v -> volumeMode: Block, volumeName: v`, `volumeMode: Invalid value: "Block": field is immutable`},
		"another handle":                    {"PersistentVolume", csiVolume, `volumeHandle: h -> volumeHandle: i`, "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation"},
		"a secret for growing":              {"PersistentVolume", csiVolume, `volumeHandle: h -> volumeHandle: h, controllerExpandSecretRef: {name: a, namespace: b}`, ""},
		"no attributes of the volume":       {"PersistentVolume", csiVolume, `volumeAttributesClassName: gold, -> `, "spec.volumeAttributesClassName: Forbidden: update from non-nil value to nil is forbidden"},
		"a place, late":                     {"PersistentVolume", csiVolume, `csi: -> nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}, csi:`, ""},
		"a zone by its new name":            {"PersistentVolume", zonedVolume, `failure-domain.beta.kubernetes.io/zone -> topology.kubernetes.io/zone`, ""},
		"a zone by another new name":        {"PersistentVolume", zonedVolume, `failure-domain.beta.kubernetes.io/zone -> topology.kubernetes.io/region`, "nodeAffinity: Invalid value"},
		"another zone by its new name":      {"PersistentVolume", zonedVolume, `failure-domain.beta.kubernetes.io/zone, operator: In, values: [a] -> topology.kubernetes.io/zone, operator: In, values: [b]`, "nodeAffinity: Invalid value"},
		"another zone":                      {"PersistentVolume", zonedVolume, `[a] -> [b]`, "nodeAffinity: Invalid value"},
		"another place beside":              {"PersistentVolume", zonedVolume, `[{matchExpressions -> [{matchFields: [{key: metadata.name, operator: In, values: [n]}]}, {matchExpressions`, "nodeAffinity: Invalid value"},
		"the second address":                {"Service", dualService, `fd00::1 -> fd00::2`, `spec.clusterIPs[1]: Invalid value: ["10.0.0.1","fd00::2"]: may not change once set`},
		"the list of addresses alone":       {"Service", dualService, `clusterIPs: [10.0.0.1 -> clusterIPs: [10.0.0.9`, "spec.clusterIPs[0]: Invalid value: [\"10.0.0.9\",\"fd00::1\"]: may not change once set"},
		"families in another order":         {"Service", dualService, `[IPv4, IPv6] -> [IPv6, IPv4]`, "spec.ipFamilies[0]: Invalid value: [\"IPv6\",\"IPv4\"]: may not change once set"},
		"less without saying so":            {"Service", dualService, `, "fd00::1"] -> ]`, "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": must be set to 'SingleStack' when releasing the secondary clusterIP"},
		"less":                              {"Service", dualService, `RequireDualStack -> SingleStack`, ""},
		"another class of balancers":        {"Service", balancer1, `a.b/c -> a.b/d`, "spec.loadBalancerClass: Invalid value: \"a.b/d\": may not change once set"},
		"another port for health":           {"Service", balancer1, `30001 -> 30002`, "spec.healthCheckNodePort: Forbidden: field is immutable"},
		"completions with parallelism":      {"Job", indexedJob, `completions: 3, parallelism: 3 -> completions: 4, parallelism: 4`, ""},
		"completions without parallelism":   {"Job", indexedJob, `completions: 3 -> completions: 4`, "spec.completions: Invalid value: 4: can only be modified in tandem with spec.parallelism"},
		"parallelism":                       {"Job", indexedJob, `parallelism: 3 -> parallelism: 1`, ""},
		"policy of success":                 {"Job", indexedJob, `succeededCount: 1 -> succeededCount: 2`, "spec.successPolicy: Invalid value"},
		"mode of completion":                {"Job", indexedJob, `completionMode: Indexed -> completionMode: NonIndexed`, "spec.completionMode: Invalid value: \"NonIndexed\": field is immutable"},
		"template of a job":                 {"Job", indexedJob, `image: i -> image: j`, "spec.template: Invalid value"},
		"where a suspended job goes":        {"Job", suspendedJob, `affinity: {nodeAffinity: {}} -> nodeSelector: {a: b}, tolerations: [{operator: Exists}]`, ""},
		"whom a suspended job is with":      {"Job", suspendedJob, `nodeAffinity: {} -> podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: z}]}`, "spec.template: Invalid value"},
		"what a suspended job needs":        {"Job", suspendedJob, `image: i -> image: i, resources: {requests: {cpu: 2}}`, ""},
		"another image, suspended":          {"Job", suspendedJob, `image: i -> image: j`, "spec.template: Invalid value"},
		"one more container, suspended":     {"Job", suspendedJob, `{name: c, image: i} -> {name: c, image: i}, {name: d, image: i}`, "spec.template: Invalid value"},
		"what a stopped job needs":          {"Job", stoppedJob, `image: i}], -> image: i, resources: {limits: {cpu: 2}}}], nodeSelector: {a: b},`, ""},
		"what a job that stops needs":       {"Job", strings.Replace(stoppedJob, "active: 0", "active: 1", 1), `image: i -> image: i, resources: {requests: {cpu: 2}}`, "spec.template: Invalid value"},
		"what a job not yet stopped needs":  {"Job", strings.Replace(stoppedJob, `"True"`, `"False"`, 1), `image: i -> image: i, resources: {requests: {cpu: 2}}`, "spec.template: Invalid value"},
		"what a job that runs needs":        {"Job", strings.Replace(stoppedJob, "suspend: true", "suspend: false", 1), `image: i -> image: i, resources: {requests: {cpu: 2}}`, "spec.template: Invalid value"},
		"a gated pod goes to fewer nodes":   {"Pod", gatedPod, `nodeSelector: {a: b} -> nodeSelector: {a: b, c: d}`, ""},
		"a gated pod goes to others":        {"Pod", gatedPod, `nodeSelector: {a: b} -> nodeSelector: {a: c}`, "spec.nodeSelector: Invalid value: {\"a\":\"c\"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)"},
		"a gated pod's affinity narrows":    {"Pod", gatedPod, `operator: Exists} -> operator: Exists}, {key: b, operator: Exists}`, ""},
		"a gated pod's affinity changes":    {"Pod", gatedPod, `operator: Exists -> operator: DoesNotExist`, "nodeSelectorTerms[0]: Invalid value"},
		"a gated pod's affinity widens":     {"Pod", gatedPod, `operator: Exists}]} -> operator: Exists}]}, {matchExpressions: [{key: b, operator: Exists}]}`, "no additions/deletions to non-empty NodeSelectorTerms list are allowed"},
		"a gated pod's affinity goes":       {"Pod", gatedPod, `requiredDuring -> preferredDuring`, "no additions/deletions to non-empty NodeSelectorTerms list are allowed"},
		"a gated pod's company":             {"Pod", gatedPod, `affinity: { -> affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: z}]}, `, "spec: Forbidden: pod updates may not change fields other than"},
		"a second range":                    {"ServiceCIDR", `spec: {cidrs: [10.0.0.0/24]}`, `10.0.0.0/24 -> 10.0.0.0/24, "fd00::/112"`, ""},
		"a second range of the same family": {"ServiceCIDR", `spec: {cidrs: [10.0.0.0/24]}`, `10.0.0.0/24 -> 10.0.0.0/24, 10.1.0.0/24`, "may specify no more than one IP for each IP family"},
		"another range":                     {"ServiceCIDR", `spec: {cidrs: [10.0.0.0/24]}`, `10.0.0.0/24 -> 10.1.0.0/24`, "spec.cidrs[0]: Invalid value: \"10.1.0.0/24\": field is immutable"},
		"a revision's number":               {"ControllerRevision", `{revision: 1, data: {a: b}}`, `revision: 1 -> revision: -1`, "revision: Invalid value: -1"},
		"a revision's data":                 {"ControllerRevision", `{revision: 1, data: {a: b}}`, `a: b -> a: c`, "data: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			k := kindOf(t, c.kind)
			from, to, _ := strings.Cut(c.change, " -> ")
			changed := strings.Replace(c.old, from, to, 1)
			if changed == c.old {
				t.Fatalf("%q is not in %s", from, c.old)
			}
			if strings.HasPrefix(to, "preferredDuring") {
				changed = strings.Replace(c.old, "nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "+
					"{nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}", "nodeAffinity: {}", 1)
			}
			old, obj := read(t, k, c.old), read(t, k, changed)
			if k.PrepareUpdate != nil {
				k.PrepareUpdate(obj, old)
			}
			if got := messages(k.ValidateUpdate(obj, old)); (got == "") != (c.want == "") ||
				!strings.Contains(got, c.want) {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
		})
	}
}

// Impossible statuses are rejected, and valid ones are accepted.
// Proves S12.
//
//style:long a table of statuses of each kind
func TestStatusesAreValidated(t *testing.T) {
	const (
		workload = "spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: " +
			"{containers: [{name: c, image: i}]}}}\nstatus: "
		job = "spec: {backoffLimitPerIndex: 1, completionMode: Indexed, completions: 5, template: {spec: " +
			"{restartPolicy: Never, containers: [{name: c, image: i}]}}}\nstatus: "
		started = `startTime: "2026-01-02T00:00:00Z"`
		met     = `conditions: [{type: SuccessCriteriaMet, status: "True"}, {type: Complete, status: "True"}]`
		ended   = `completionTime: "2026-01-03T00:00:00Z"`
		pod     = "spec: {restartPolicy: RESTART, containers: [{name: c, image: i}]}\nstatus: "
		over    = `{qosClass: BestEffort, containerStatuses: [{name: c, state: {terminated: {exitCode: CODE}}}]}`
		again   = `{qosClass: BestEffort, containerStatuses: [{name: c, state: {running: {}}}]}`
	)
	restarts := func(policy, code, status string) string {
		return strings.NewReplacer("RESTART", policy, "CODE", code).Replace(pod + status)
	}
	for name, c := range map[string]struct{ kind, old, current, want string }{
		"deployment": {"Deployment", workload + "{}", workload + "{replicas: 2, updatedReplicas: 1, " +
			"readyReplicas: 2, availableReplicas: 1}", ""},
		"more ready than there are": {"Deployment", workload + "{}", workload + "{replicas: 1, readyReplicas: " +
			"2}", "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas"},
		"more available than ready": {"Deployment", workload + "{}", workload + "{replicas: 2, readyReplicas: 1, " +
			"availableReplicas: 2}", "status.availableReplicas: Invalid value: 2: cannot be greater than " +
			"readyReplicas"},
		"fewer than none": {"ReplicaSet", workload + "{}", workload + "{replicas: -1}", "status.replicas: " +
			"Invalid value: -1: must be greater than or equal to 0"},
		"collisions undone": {"Deployment", workload + "{collisionCount: 2}", workload + "{collisionCount: 1}",
			"status.collisionCount: Invalid value: 1: cannot be decremented"},
		"stateful": {"StatefulSet", workload + "{}", workload + "{replicas: 2, currentReplicas: " +
			"3}", "status.currentReplicas: Invalid value: 3: cannot be greater than status.replicas"},
		"daemons": {"DaemonSet", workload + "{}", workload + "{numberMisscheduled: " +
			"-1}", "status.numberMisscheduled: Invalid value: -1"},
		"controller": {"ReplicationController", "{}", "status: {replicas: 1, fullyLabeledReplicas: " +
			"2}", "status.fullyLabeledReplicas: Invalid value: 2"},
		"budget":     {"PodDisruptionBudget", `spec: {minAvailable: 1}`, `{spec: {minAvailable: 1}, status: {disruptionsAllowed: -1}}`, "status.disruptionsAllowed: Invalid value: -1"},
		"autoscaler": {"HorizontalPodAutoscaler", `spec: {}`, `{status: {desiredReplicas: -1}}`, "status.desiredReplicas: Invalid value: -1"},
		"job":        {"Job", job + "{}", job + "{" + started + ", " + ended + ", " + met + `, completedIndexes: "0,2-3", failedIndexes: "1,4"}`, ""},
		"job that ended at no time": {"Job", job + "{}", job + "{" + started + ", " + met + "}",
			"status.completionTime: Required value: completionTime is required for Complete jobs"},
		"job that has not begun": {"Job", job + "{}", job + "{" + ended + ", " + met + "}", "status.startTime: " +
			"Required value: startTime is required for finished job"},
		"job that still runs": {"Job", job + "{}", job + "{active: 1, " + started + ", " + ended + ", " + met +
			"}", "status.active: Invalid value: 1: active>0 is invalid for finished job"},
		"job that was right before": {"Job", job + "{active: 1, " + started + ", " + ended + ", " + met + "}", job +
			"{active: 1, succeeded: 1, " + started + ", " + ended + ", " + met + "}", ""},
		"job that failed at once": {"Job", job + "{}", job + "{" + started + `, conditions: [{type: Failed, status: "True"}]}`, "cannot set Failed=True condition without the FailureTarget=true condition"},
		"job that is complete again": {"Job", job + "{" + started + ", " + ended + ", " + met + "}", job + "{" +
			started + "}", "cannot disable the terminal Complete=True condition"},
		"job that forgets": {"Job", job + "{succeeded: 2}", job + "{succeeded: 1}", "status.succeeded: " +
			"Invalid value: 1: cannot decrease the succeeded counter"},
		"job that begins later": {"Job", job + "{" + started + "}", job + `{startTime: "2026-01-04T00:00:00Z"}`, "status.startTime: Required value: startTime cannot be removed for unsuspended job"},
		"index twice":           {"Job", job + "{}", job + `{completedIndexes: "0-2", failedIndexes: "2"}`, "failedIndexes and completedIndexes overlap at index: 2"},
		"index backwards":       {"Job", job + "{}", job + `{completedIndexes: "2,1"}`, "error parsing completedIndexes: non-increasing order, previous: 2, current: 1"},
		"index too large":       {"Job", job + "{}", job + `{completedIndexes: "7"}`, `error parsing completedIndexes: too large index: "7"`},
		"pod counted twice":     {"Job", job + "{}", job + `{uncountedTerminatedPods: {succeeded: [a], failed: [a]}}`, `status.uncountedTerminatedPods.failed[0]: Duplicate value: "a"`},

		"ends for good": {"Pod", restarts("Never", "1", over), restarts("Never", "1", again),
			"status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"},
		"ends well": {"Pod", restarts("OnFailure", "0", over), restarts("OnFailure", "0", again),
			"status.containerStatuses[0].state: Forbidden"},
		"ends and runs again": {"Pod", restarts("OnFailure", "1", over), restarts("OnFailure", "1", again), ""},
		"always runs again":   {"Pod", restarts("Always", "0", over), restarts("Always", "0", again), ""},
		"another class":       {"Pod", restarts("Never", "0", over), restarts("Never", "0", strings.Replace(over, "BestEffort", "Guaranteed", 1)), `status.qosClass: Invalid value: "Guaranteed": field is immutable`},
		"two addresses of a kind": {"Pod", restarts("Never", "0", over),
			restarts("Never", "0", strings.Replace(over, "{qos", "{podIPs: [{ip: 10.0.0.1}, {ip: 10.0.0.2}], "+
				"qos", 1)), "may specify no more than one IP for each IP family"},

		"namespace that lives": {"Namespace", "status: {phase: Active}", "status: {phase: " +
			"Terminating}", "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if " +
			"`deletionTimestamp` is empty"},
		"quota":            {"ResourceQuota", "{}", `status: {used: {wild: "1"}}`, "status.used[wild]: Invalid value"},
		"node's addresses": {"Node", "{}", `status: {addresses: [{type: InternalIP, address: a}, {type: InternalIP, address: a}]}`, "status.addresses[1]: Duplicate value"},
		"node's capacity":  {"Node", "{}", `status: {capacity: {pods: "1.5"}}`, `status.capacity[pods]: Invalid value: "1500m": must be an integer`},
		"balancer": {"Service", "spec: {type: LoadBalancer, ports: [{port: " +
			"80}]}", "{spec: {type: LoadBalancer, ports: [{port: 80}]}, status: {loadBalancer: {ingress: [{ip: " +
			"10.0.0.1}]}}}", ""},
		"balancer of nothing": {"Service", "spec: {ports: [{port: 80}]}", "{spec: {ports: [{port: 80}]}, status: {loadBalancer: {ingress: [{hostname: a}]}}}", `status.loadBalancer.ingress: Forbidden: may only be used when ` + "`spec.type` is \"LoadBalancer\""},
		"balancer's mode": {"Service", "spec: {type: LoadBalancer}", "{spec: {type: LoadBalancer}, status: " +
			"{loadBalancer: {ingress: [{hostname: a, ipMode: VIP}]}}}", "status.loadBalancer.ingress[0].ipMode: " +
			"Forbidden: may not be specified when `ip` is not set"},
		"ingress": {"Ingress", "{}", "status: {loadBalancer: {ingress: [{hostname: " +
			"10.0.0.1}]}}", "must be a DNS name, not an IP address"},
		"claim's growth": {"PersistentVolumeClaim", "{}", "status: {allocatedResourceStatuses: {storage: " +
			"Wild}}", "status.allocatedResourceStatus: Unsupported value: \"storage\""},
		"API service": {"APIService", "{}", "status: {conditions: [{type: Available, status: Maybe}]}", `status.conditions[0].status: Unsupported value: "Maybe": supported values: "False", "True", "Unknown"`},
		"attachment": {"VolumeAttachment", "{}", "status: {attachError: {message: " + strings.Repeat("x", 1025) + "}}",
			"status.attachError.message: Too long: may not be more than 1024 bytes"},
		"flow schema": {"FlowSchema", "{}", "status: {conditions: [{type: A}, {type: A}]}", `status.conditions[1].type: Duplicate value: "A"`},
	} {
		t.Run(name, func(t *testing.T) {
			k := kindOf(t, c.kind)
			obj, old := read(t, k, c.current), read(t, k, c.old)
			if got := messages(k.Status.Validate(obj, old)); (got == "") != (c.want == "") ||
				!strings.Contains(got, c.want) {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
		})
	}
}
