package kinds

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The test covers the cells that kubectl get shows.
func TestRowsMatchKubectl(t *testing.T) {
	synctest.Test(t, testRows)
}

// testRows compares cells an hour after the objects were created.
func testRows(t *testing.T) {
	time.Sleep(time.Until(time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC))) // by the clock of synctest
	const made = `metadata: {name: x, creationTimestamp: "2026-01-01T00:00:00Z"}`
	pod := func(spec, status string) string {
		return "{" + made + ", spec: {" + spec + "}, status: {" + status + "}}"
	}
	const two = `nodeName: n1, containers: [{name: a}, {name: b}]`
	for name, c := range map[string]struct{ kind, given, want string }{
		"pending":         {"Pod", pod(`containers: [{name: a}]`, ``), "0/1 Pending 0 60m <none> <none> <none> <none>"},
		"running":         {"Pod", pod(two, `phase: Running, podIP: 10.0.0.1, containerStatuses: [{name: a, ready: true, state: {running: {}}}, {name: b, ready: true, state: {running: {}}}]`), "2/2 Running 0 60m 10.0.0.1 n1 <none> <none>"},
		"crash loop":      {"Pod", pod(two, `phase: Running, containerStatuses: [{name: a, ready: true, state: {running: {}}}, {name: b, restartCount: 3, lastState: {terminated: {exitCode: 1, finishedAt: "2026-01-01T00:58:00Z"}}, state: {waiting: {reason: CrashLoopBackOff}}}]`), "1/2 CrashLoopBackOff 3 (2m ago) 60m <none> n1 <none> <none>"},
		"pull":            {"Pod", pod(two, `phase: Pending, containerStatuses: [{name: a, state: {waiting: {reason: ErrImagePull}}}, {name: b, state: {waiting: {reason: ContainerCreating}}}]`), "0/2 ErrImagePull 0 60m <none> n1 <none> <none>"},
		"init":            {"Pod", pod(two+`, initContainers: [{name: i}, {name: j}]`, `phase: Pending, initContainerStatuses: [{name: i, state: {terminated: {exitCode: 0}}}, {name: j, state: {running: {}}}], containerStatuses: [{name: a, state: {waiting: {reason: PodInitializing}}}]`), "0/2 Init:1/2 0 60m <none> n1 <none> <none>"},
		"init fails":      {"Pod", pod(two+`, initContainers: [{name: i}]`, `phase: Pending, initContainerStatuses: [{name: i, state: {terminated: {exitCode: 1, reason: Error}}}]`), "0/2 Init:Error 0 60m <none> n1 <none> <none>"},
		"init loop":       {"Pod", pod(two+`, initContainers: [{name: i}]`, `phase: Pending, initContainerStatuses: [{name: i, restartCount: 2, state: {waiting: {reason: CrashLoopBackOff}}}]`), "0/2 Init:CrashLoopBackOff 2 60m <none> n1 <none> <none>"},
		"sidecar":         {"Pod", pod(`nodeName: n1, containers: [{name: a}], initContainers: [{name: s, restartPolicy: Always}]`, `phase: Running, initContainerStatuses: [{name: s, started: true, ready: true, state: {running: {}}}], containerStatuses: [{name: a, ready: true, state: {running: {}}}]`), "2/2 Running 0 60m <none> n1 <none> <none>"},
		"completed":       {"Pod", pod(`nodeName: n1, containers: [{name: a}]`, `phase: Succeeded, containerStatuses: [{name: a, state: {terminated: {exitCode: 0, reason: Completed}}}]`), "0/1 Completed 0 60m <none> n1 <none> <none>"},
		"killed":          {"Pod", pod(`nodeName: n1, containers: [{name: a}]`, `phase: Failed, containerStatuses: [{name: a, state: {terminated: {exitCode: 137, reason: OOMKilled}}}]`), "0/1 OOMKilled 0 60m <none> n1 <none> <none>"},
		"exit code":       {"Pod", pod(`nodeName: n1, containers: [{name: a}]`, `phase: Failed, containerStatuses: [{name: a, state: {terminated: {exitCode: 3}}}]`), "0/1 ExitCode:3 0 60m <none> n1 <none> <none>"},
		"evicted":         {"Pod", pod(`nodeName: n1, containers: [{name: a}]`, `phase: Failed, reason: Evicted`), "0/1 Evicted 0 60m <none> n1 <none> <none>"},
		"one of two done": {"Pod", pod(two, `phase: Running, conditions: [{type: Ready, status: "False"}], containerStatuses: [{name: a, state: {terminated: {exitCode: 0, reason: Completed}}}, {name: b, ready: true, state: {running: {}}}]`), "1/2 NotReady 0 60m <none> n1 <none> <none>"},
		"gated":           {"Pod", pod(`containers: [{name: a}], schedulingGates: [{name: g}]`, `phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: SchedulingGated}]`), "0/1 SchedulingGated 0 60m <none> <none> <none> <none>"},
		"terminating":     {"Pod", strings.Replace(pod(two, `phase: Running, containerStatuses: [{name: a, ready: true, state: {running: {}}}]`), "name: x,", `name: x, deletionTimestamp: "2026-01-01T00:59:00Z",`, 1), "1/2 Terminating 0 60m <none> n1 <none> <none>"},

		"deployment":    {"Deployment", `{` + made + `, spec: {replicas: 3, selector: {matchLabels: {a: b}}, template: {spec: {containers: [{name: c, image: i}]}}}, status: {readyReplicas: 2, updatedReplicas: 3, availableReplicas: 1}}`, "2/3 3 1 60m c i a=b"},
		"service":       {"Service", `{` + made + `, spec: {type: NodePort, clusterIP: 10.0.0.1, selector: {a: b}, ports: [{port: 80, nodePort: 30080}, {port: 53, protocol: UDP}]}}`, "NodePort 10.0.0.1 <none> 80:30080/TCP,53/UDP 60m a=b"},
		"load balancer": {"Service", `{` + made + `, spec: {type: LoadBalancer, clusterIP: 10.0.0.1, ports: [{port: 80}]}}`, "LoadBalancer 10.0.0.1 <pending> 80/TCP 60m <none>"},
		"external name": {"Service", `{` + made + `, spec: {type: ExternalName, externalName: a.example.com}}`, "ExternalName <none> a.example.com <none> 60m <none>"},
		"node": {"Node", `{metadata: {creationTimestamp: "2026-01-01T00:00:00Z", labels: {node-role.kubernetes.io/control-plane: ""}}, spec: {unschedulable: true}, status: {conditions: [{type: Ready, status: "True"}], addresses: [{type: InternalIP, address: 10.0.0.2}], nodeInfo: {kubeletVersion: v1, osImage: Debian}}}`,
			"Ready,SchedulingDisabled control-plane 60m v1 10.0.0.2 <none> Debian <unknown> <unknown>"},
		"silent node":  {"Node", `{` + made + `, status: {conditions: [{type: Ready, status: Unknown}]}}`, "NotReady <none> 60m  <none> <none> <unknown> <unknown> <unknown>"},
		"job":          {"Job", `{` + made + `, spec: {completions: 3, template: {spec: {containers: [{name: c, image: i}]}}}, status: {succeeded: 1, startTime: "2026-01-01T00:50:00Z"}}`, "Running 1/3 10m 60m c i <none>"},
		"finished job": {"Job", `{` + made + `, spec: {completions: 1, template: {spec: {containers: [{name: c, image: i}]}}}, status: {succeeded: 1, startTime: "2026-01-01T00:50:00Z", completionTime: "2026-01-01T00:50:05Z", conditions: [{type: Complete, status: "True"}]}}`, "Complete 1/1 5s 60m c i <none>"},
		"event":        {"Event", `{` + made + `, involvedObject: {kind: Pod, name: p}, type: Normal, reason: R, message: "M ", count: 2, source: {component: k, host: h}, firstTimestamp: "2026-01-01T00:50:00Z", lastTimestamp: "2026-01-01T00:59:00Z"}`, "60s Normal R pod/p  k, h M 10m 2 x"},
		"claim":        {"PersistentVolumeClaim", `{` + made + `, spec: {volumeName: v, storageClassName: s}, status: {phase: Bound, capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce]}}`, "Bound v 1Gi RWO s <unset> 60m Filesystem"},
		"endpoints":    {"Endpoints", `{` + made + `, subsets: [{addresses: [{ip: 1.1.1.1}, {ip: 1.1.1.2}], ports: [{port: 80}, {port: 81}]}]}`, "1.1.1.1:80,1.1.1.2:80,1.1.1.1:81 + 1 more... 60m"},
		"default sc":   {"StorageClass", `{metadata: {name: s, creationTimestamp: "2026-01-01T00:00:00Z", annotations: {storageclass.kubernetes.io/is-default-class: "true"}}, provisioner: p}`, "s (default) p Delete Immediate false 60m"},
	} {
		k := kindOf(t, c.kind)
		var cells []string
		for _, cell := range k.Row(read(t, k, c.given)) {
			cells = append(cells, fmt.Sprint(cell))
		}
		if got := strings.Join(cells, " "); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}
