package why

import (
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// brokenCase is an object that is not as it should be, with what its report must say.
type brokenCase struct {
	name    string
	object  string
	log     string
	objects []runtime.Object
	verdict string
	remedy  string // a text, field or command that one of the remedies contains
	step    string // part of a step, if not empty
}

func (c brokenCase) run(t *testing.T) {
	t.Helper()
	clients, _ := newTestClients(c.log, c.objects...)
	ref, err := Parse(c.object, testNamespace)
	if err != nil {
		t.Fatal(err)
	}
	report, err := Explain(t.Context(), clients, ref)
	if err != nil {
		t.Fatal(err)
	}
	if report.Healthy || report.Verdict != c.verdict {
		t.Errorf("verdict (healthy: %v):\n%s\nwant:\n%s", report.Healthy, report.Verdict, c.verdict)
	}
	if len(report.Chain) == 0 || report.Chain[0].Object != ref {
		t.Errorf("the chain does not begin with %s: %v", ref, report.Chain)
	}
	found, steps := false, ""
	for _, m := range report.Remedies {
		found = found || strings.Contains(m.Text+"\n"+m.Field+"\n"+m.Command, c.remedy)
	}
	if !found {
		t.Errorf("no remedy has %q: %+v", c.remedy, report.Remedies)
	}
	for _, s := range report.Chain {
		steps += s.Object.String() + ": " + s.Text + "\n"
	}
	if !strings.Contains(steps, c.step) {
		t.Errorf("no step has %q:\n%s", c.step, steps)
	}
}

//style:long a table of broken pods and what is said of them
func TestBrokenPodsAreExplained(t *testing.T) {
	secret := corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys"}}
	tainted := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	}
	busy := newPod("busy", readyPod, requesting(corev1.ResourceCPU, "1500m"))
	idle := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-scheduler"}}
	idle.Spec.RenewTime = ptr.To(metav1.NewMicroTime(metav1.Now().Add(-600e9)))
	wait := storagev1.VolumeBindingImmediate
	slow := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "slow"}, Provisioner: "disks.example",
		VolumeBindingMode: &wait}
	dns := &networkingv1.NetworkPolicy{ObjectMeta: newMeta("closed")}
	dns.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	resolver := newSlice("kube-dns", "10.96.0.10")
	resolver.Namespace = "kube-system"
	for _, c := range []brokenCase{
		{name: "the tag does not exist", object: "pod/web", objects: []runtime.Object{newPod("web", waitingFor(
			"ImagePullBackOff", `Back-off pulling image "registry.example/web:v1": ErrImagePull: not found`)), newNode("a")},
			verdict: "Pod shop/web does not run because image registry.example/web:v1 does not exist.",
			remedy:  "kubectl set image -n shop pod/web app=IMAGE"},
		{name: "the registry needs credentials", object: "pod/web", objects: []runtime.Object{newPod("web", waitingFor(
			"ErrImagePull", "failed to authorize: 401 Unauthorized")), newNode("a")},
			verdict: "Pod shop/web does not run because the registry refuses to hand out image " +
				"registry.example/web:v1 " +
				"without other credentials, or it does not exist.", remedy: "imagePullSecrets"},
		{name: "the registry is not reached", object: "pod/web", objects: []runtime.Object{newPod("web", waitingFor(
			"ImagePullBackOff", `Back-off pulling image "registry.example/web:v1"`)), newNode("a"), event("Pod", "web",
			"Failed", `Failed to pull image "registry.example/web:v1": dial tcp: lookup registry.example: no such host`)},
			verdict: "Pod shop/web does not run because node a does not reach the registry of image " +
				"registry.example/web:v1.",
			remedy: "https://registry.example/v2/", step: "no such host"},
		{name: "the image may not be pulled", object: "pod/web", objects: []runtime.Object{newPod("web", waitingFor(
			"ErrImageNeverPull", "")), newNode("a")},
			verdict: "Pod shop/web does not run because image registry.example/web:v1 is not on node a, and " +
				"imagePullPolicy " +
				"is Never.", remedy: "imagePullPolicy"},
		{name: "out of memory", object: "pod/web", log: "reading\nindexing", objects: []runtime.Object{newPod("web",
			crashing("OOMKilled", 137), func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"memory": resource.MustParse("64Mi")}
			}), newNode("a")},
			verdict: "Pod shop/web does not run because container app is killed because it uses more than its memory " +
				"limit " +
				"of 64Mi.", remedy: "spec.containers[app].resources.limits.memory of Pod shop/web",
			step: "The last lines of container app: reading | indexing."},
		{name: "the program fails", object: "pod/web", log: "cannot open /etc/web.conf",
			objects: []runtime.Object{newPod("web", crashing("Error", 1)), newNode("a")},
			verdict: "Pod shop/web does not run because the program of container app ends with exit code 1.",
			remedy:  "kubectl logs -n shop web -c app --previous", step: "cannot open /etc/web.conf"},
		{name: "the program ends", object: "pod/web", objects: []runtime.Object{newPod("web", crashing("Completed", 0)),
			newNode("a")}, verdict: "Pod shop/web does not run because the program of container app ends with exit " +
			"code 0, " +
			"although it should keep running.", remedy: "spec.containers[app].command of Pod shop/web"},
		{name: "the program is missing", object: "pod/web", objects: []runtime.Object{newPod("web", waitingFor(
			"RunContainerError", `exec: "serve": executable file not found in $PATH`)), newNode("a")},
			verdict: `Pod shop/web does not run because the program of container app is not in its image: exec: "serve": ` +
				"executable file not found in $PATH.", remedy: "command of Pod shop/web"},
		{name: "the liveness probe fails", object: "pod/web", objects: []runtime.Object{newPod("web", crashing("Error",
			137)), newNode("a"), event("Pod", "web", "Killing", "Container app failed liveness probe, will be "+
			"restarted",
			ofContainer), event("Pod", "web", "Unhealthy", "Liveness probe failed: HTTP probe failed with "+
			"statuscode: 404",
			ofContainer)},
			verdict: "Pod shop/web does not run because the liveness probe of container app fails: its path does not " +
				"exist " +
				"(HTTP probe failed with statuscode: 404).", remedy: "livenessProbe"},
		{name: "the readiness probe fails", object: "pod/web", objects: []runtime.Object{newPod("web", unready),
			newNode("a"), event("Pod", "web", "Unhealthy", `Readiness probe failed: Get "http://10.0.0.7:8080/": dial tcp `+
				"10.0.0.7:8080: connect: connection refused", ofContainer)},
			verdict: `Pod shop/web is not ready because the readiness probe of container app fails: nothing listens on its ` +
				`port (Get "http://10.0.0.7:8080/": dial tcp 10.0.0.7:8080: connect: connection refused).`,
			remedy: "spec.containers[app].readinessProbe of Pod shop/web"},
		{name: "a ConfigMap is missing", object: "pod/web", objects: []runtime.Object{newPod("web", waitingFor(
			"CreateContainerConfigError", `configmap "settings" not found`)), newNode("a")},
			verdict: "Pod shop/web does not run because ConfigMap shop/settings does not exist.",
			remedy:  "kubectl create configmap -n shop settings --from-file=FILE"},
		{name: "a key is missing", object: "pod/web", objects: []runtime.Object{newPod("web", waitingFor(
			"CreateContainerConfigError", `couldn't find key url in Secret shop/keys`)), newNode("a")},
			verdict: "Pod shop/web does not run because Secret keys has no key url.",
			remedy:  "kubectl edit -n shop secret keys"},
		{name: "a Secret of a volume is missing", object: "pod/web", objects: []runtime.Object{newPod("web", waitingFor(
			"ContainerCreating", ""), withVolume(secret)), newNode("a")},
			verdict: "Pod shop/web does not run because Secret shop/keys does not exist.",
			remedy:  "kubectl create secret generic -n shop keys --from-file=FILE"},
		{name: "a volume cannot be mounted", object: "pod/web", objects: []runtime.Object{newPod("web", waitingFor(
			"ContainerCreating", "")), newNode("a"), event("Pod", "web", "FailedMount", "mount: wrong fs type")},
			verdict: "Pod shop/web does not run because a volume cannot be mounted: mount: wrong fs type.",
			remedy:  "spec.volumes of Pod shop/web"},
		{name: "no sandbox", object: "pod/web",
			objects: []runtime.Object{newPod("web", waitingFor("ContainerCreating", "")),
				newNode("a"), event("Pod", "web", "FailedCreatePodSandBox", "no addresses are left")},
			verdict: "Pod shop/web does not run because node a cannot create its sandbox: no addresses are left.",
			remedy:  "clusterctl ssh a journalctl"},
		{name: "no room", object: "pod/web", objects: []runtime.Object{newPod("web", unscheduled(
			"0/1 nodes are available: 1 Insufficient cpu."), requesting(corev1.ResourceCPU, "1")), newNode("a"), busy},
			verdict: "Pod shop/web is not scheduled because no node can take it: node a: the pod requests 1 cpu, " +
				"and 500m of 2 is free.", remedy: "spec.containers[*].resources.requests.cpu of Pod shop/web",
			step: "The scheduler reports: 0/1 nodes are available: 1 Insufficient cpu."},
		{name: "a taint", object: "pod/web", objects: []runtime.Object{newPod("web", unscheduled(
			"0/2 nodes are available: 2 node(s) had untolerated taint(s).")), newNode("a", tainted),
			newNode("b", tainted)},
			verdict: "Pod shop/web is not scheduled because no node can take it: nodes a, b: the pod does not " +
				"tolerate the " +
				"taint dedicated=gpu:NoSchedule.", remedy: "kubectl taint nodes a dedicated:NoSchedule-"},
		{name: "a label", object: "pod/web", objects: []runtime.Object{newPod("web", unscheduled(
			"0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."), func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
		}), newNode("a")},
			verdict: "Pod shop/web is not scheduled because no node can take it: node a: it does not have the label " +
				"disk=ssd " +
				"of the pod's node selector.", remedy: "nodeSelector"},
		{name: "cordoned", object: "pod/web", objects: []runtime.Object{newPod("web", unscheduled(
			"0/1 nodes are available: 1 node(s) were unschedulable.")), newNode("a", func(n *corev1.Node) {
			n.Spec.Unschedulable = true
		})},
			verdict: "Pod shop/web is not scheduled because no node can take it: node a: it is cordoned.",
			remedy:  "kubectl uncordon a"},
		{name: "spread constraints", object: "pod/web", objects: []runtime.Object{newPod("web", unscheduled(
			"0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints.")), newNode("a")},
			verdict: "Pod shop/web is not scheduled because 0/1 nodes are available: 1 node(s) didn't match pod " +
				"topology " +
				"spread constraints.", remedy: "topologySpreadConstraints"},
		{name: "no scheduler", object: "pod/web",
			objects: []runtime.Object{newPod("web", unscheduled("")), newNode("a"),
				idle}, verdict: "Pod shop/web is not scheduled because no kube-scheduler has been running for 10m.",
			remedy: "clusterctl status"},
		{name: "a scheduling gate", object: "pod/web", objects: []runtime.Object{newPod("web", unscheduled(""),
			func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}} })},
			verdict: "Pod shop/web is not scheduled because its scheduling gates have not been removed: " +
				"example.com/wait.",
			remedy: "spec.schedulingGates"},
		{name: "an unbound claim", object: "pod/web", objects: []runtime.Object{newPod("web", unscheduled(
			"pod has unbound immediate PersistentVolumeClaims"), withClaim("data")), newNode("a"),
			newClaim("data", "slow"),
			slow, event("PersistentVolumeClaim", "data", "ProvisioningFailed", "the pool is full")},
			verdict: "Pod shop/web is not scheduled because no volume could be created: the pool is full.",
			remedy:  "storage class slow", step: "PersistentVolumeClaim shop/data: No volume could be created"},
		{name: "a missing claim", object: "pod/web", objects: []runtime.Object{newPod("web", unscheduled(
			`persistentvolumeclaim "data" not found`), withClaim("data")), newNode("a")},
			verdict: "Pod shop/web is not scheduled because PersistentVolumeClaim shop/data does not exist.",
			remedy:  "Create the claim"},
		{name: "a lost node", object: "pod/web", objects: []runtime.Object{newPod("web", readyPod), newNode("a", nodeIs(
			corev1.NodeReady, corev1.ConditionUnknown, "Kubelet stopped posting node status."))},
			verdict: "Pod shop/web is not ready because the kubelet has stopped reporting: the machine is off, " +
				"unreachable, " +
				"or its kubelet has ended (Node a).", remedy: "clusterctl status"},
		{name: "evicted", object: "pod/web", objects: []runtime.Object{newPod("web", func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted"
			p.Status.Message = "The node was low on resource: memory."
		})}, verdict: "Pod shop/web has failed because its node evicted it: The node was low on resource: memory.",
			remedy: "kubectl delete -n shop pod/web"},
		{name: "a finalizer", object: "pod/web", objects: []runtime.Object{deleted(newPod("web"), "example.com/held"),
			newNode("a")}, verdict: "Pod shop/web is still terminating because the finalizer example.com/held of Pod " +
			"shop/web was not removed: its controller has not removed it.", remedy: `{"metadata":{"finalizers":null}}`},
		{name: "an init container", object: "pod/web", objects: []runtime.Object{newPod("web", func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "migrate"}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "migrate", State: corev1.ContainerState{
				Running: &corev1.ContainerStateRunning{}}}}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}}}
		}), newNode("a")}, verdict: "Pod shop/web does not run because its init container migrate has not finished " +
			"yet.",
			remedy: "kubectl logs -n shop web -c migrate"},
		{name: "names on the host network", object: "pod/web", log: "lookup db: no such host",
			objects: []runtime.Object{newPod("web", crashing("Error", 1), func(p *corev1.Pod) {
				p.Spec.HostNetwork, p.Spec.DNSPolicy = true, corev1.DNSClusterFirst
			}), newNode("a")},
			verdict: "Pod shop/web does not run because the program of container app ends with exit code 1, and it " +
				"cannot " +
				"resolve names of the cluster, because it uses the host's network with dnsPolicy ClusterFirst.",
			remedy: "dnsPolicy: ClusterFirstWithHostNet"},
		{name: "a policy drops DNS", object: "pod/web", log: "getaddrinfo EAI_AGAIN " +
			"db", objects: []runtime.Object{newPod(
			"web", crashing("Error", 1)), newNode("a"), dns, resolver},
			verdict: "Pod shop/web does not run because the program of container app ends with exit code 1, and " +
				"network " +
				"policy shop/closed drops its DNS requests.", remedy: "Allow UDP and TCP port 53"},
	} {
		t.Run(c.name, c.run)
	}
}
