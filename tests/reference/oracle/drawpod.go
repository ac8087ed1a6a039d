package oracle

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// DrawPod draws a pod without a node, with some of all properties that affect scheduling.
func DrawPod(t *rapid.T, w *World, name string) *corev1.Pod {
	d := draws{t}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: d.namespace(), Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{},
	}}
	p.Spec.SchedulerName = corev1.DefaultSchedulerName
	p.Status.Phase = corev1.PodPending
	if !d.oneIn(8, "no app") {
		p.Labels["app"] = pickOne(d, "app", apps...)
	}
	if d.oneIn(3, "tier") {
		p.Labels["tier"] = pickOne(d, "which tier", "front", "back")
	}
	if d.oneIn(2, "version") {
		p.Labels["version"] = pickOne(d, "which version", "1", "2")
	}
	d.importance(w, p)
	d.owner(w, p)
	d.containers(p)
	for range d.count(2, "tolerations") {
		p.Spec.Tolerations = append(p.Spec.Tolerations, d.toleration())
	}
	p.Spec.Affinity = &corev1.Affinity{}
	if d.oneIn(4, "node affinity") {
		d.nodeAffinity(w, p)
	}
	if d.oneIn(4, "pod affinity") {
		p.Spec.Affinity.PodAffinity = &corev1.PodAffinity{}
		p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, p.Spec.Affinity.PodAffinity.
			PreferredDuringSchedulingIgnoredDuringExecution = d.terms()
	}
	if d.oneIn(4, "pod anti-affinity") {
		p.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{}
		p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, p.Spec.Affinity.PodAntiAffinity.
			PreferredDuringSchedulingIgnoredDuringExecution = d.terms()
	}
	if *p.Spec.Affinity == (corev1.Affinity{}) {
		p.Spec.Affinity = nil
	}
	if d.oneIn(3, "spread") {
		d.spread(p)
	}
	d.volumes(w, p)
	d.disks(p)
	if d.oneIn(60, "restarts all") {
		p.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{
			{Action: corev1.ContainerRestartRuleActionRestartAllContainers},
		}
	}
	return p
}

func (d draws) importance(w *World, p *corev1.Pod) {
	if !d.oneIn(4, "no priority") {
		priority := pickOne[int32](d, "priority", 0, 10, 1000, -5)
		p.Spec.Priority = &priority
	}
	if d.oneIn(12, "never preempts") {
		never := corev1.PreemptNever
		p.Spec.PreemptionPolicy = &never
	}
	if d.oneIn(12, "nominated before") {
		p.Status.NominatedNodeName = pickOne(d, "nominated to", w.Nodes...).Name
	}
}

func (d draws) owner(w *World, p *corev1.Pod) {
	var owners []metav1.OwnerReference
	yes := true
	add := func(apiVersion, kind string, o metav1.ObjectMeta) {
		if o.Namespace == p.Namespace {
			owners = append(owners,
				metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: o.Name, UID: o.UID, Controller: &yes})
		}
	}
	for _, o := range w.ReplicationControllers {
		add("v1", "ReplicationController", o.ObjectMeta)
	}
	for _, o := range w.ReplicaSets {
		add("apps/v1", "ReplicaSet", o.ObjectMeta)
	}
	for _, o := range w.StatefulSets {
		add("apps/v1", "StatefulSet", o.ObjectMeta)
	}
	add("batch/v1", "Job", metav1.ObjectMeta{Namespace: p.Namespace, Name: "job", UID: "uid-job"})
	if !d.oneIn(3, "no owner") {
		p.OwnerReferences = []metav1.OwnerReference{pickOne(d, "owner", owners...)}
	}
}

// requests draws the resource requests of a container, or of a pod as a whole.
func (d draws) requests() corev1.ResourceList {
	list := corev1.ResourceList{}
	if !d.oneIn(4, "no cpu") {
		list[corev1.ResourceCPU] = resource.MustParse(pickOne(d, "cpu", "100m", "250m", "300m", "500m", "1", "0",
			"100m", "3"))
	}
	if !d.oneIn(4, "no memory") {
		list[corev1.ResourceMemory] = resource.MustParse(pickOne(d, "memory", "64Mi", "100M", "300Mi", "500Mi", "1Gi",
			"10Mi", "0", "3Gi"))
	}
	return list
}

func (d draws) containers(p *corev1.Pod) {
	for i := range 1 + d.count(1, "containers") {
		p.Spec.Containers = append(p.Spec.Containers, d.container(fmt.Sprintf("c%d", i)))
	}
	for i := range d.count(3, "init containers") {
		c := d.container(fmt.Sprintf("i%d", i))
		if d.oneIn(2, "sidecar") {
			always := corev1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	if d.oneIn(10, "overhead") {
		p.Spec.Overhead = d.requests()
	}
	if d.oneIn(8, "as a whole") {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: d.requests()}
	}
}

func (d draws) container(name string) corev1.Container {
	image := pickOne(d, "image", images...).name
	c := corev1.Container{
		Name:      name,
		Image:     image + pickOne(d, "tag", "", ":latest", ":v1"),
		Resources: corev1.ResourceRequirements{},
	}
	if !d.oneIn(3, "asks for nothing") {
		c.Resources.Requests = d.requests()
		if d.oneIn(8, "storage") {
			c.Resources.Requests[corev1.ResourceEphemeralStorage] = resource.MustParse(
				pickOne(d, "how much", "100Mi", "600Mi", "2Gi"),
			)
		}
		for range map[int]int{8: 1, 9: 2}[d.upTo(9, "extended resources")] {
			c.Resources.Requests[pickOne(d, "by which name", gpu, gpu, classGPU)] = resource.MustParse(
				pickOne(d, "gpus", "1", "2", "0"),
			)
		}
		if d.oneIn(24, "huge pages") {
			c.Resources.Requests[corev1.ResourceHugePagesPrefix+"2Mi"] = resource.MustParse("32Mi")
		}
	}
	if d.oneIn(8, "port") {
		c.Ports = append(c.Ports, corev1.ContainerPort{
			ContainerPort: 80, HostPort: pickOne[int32](d, "host port", 80, 443, 0),
			HostIP:   pickOne(d, "host ip", "", "0.0.0.0", "10.0.0.1", "10.0.0.2"),
			Protocol: pickOne(d, "protocol", corev1.ProtocolTCP, corev1.ProtocolUDP),
		})
	}
	return c
}

func (d draws) toleration() corev1.Toleration {
	t := corev1.Toleration{
		Key: pickOne(d, "key", "k1",
			"k2"), Operator: pickOne(d, "operator", corev1.TolerationOpExists, corev1.TolerationOpEqual, "",
			corev1.TolerationOpGt, corev1.TolerationOpLt),
		Effect: pickOne(d, "effect", "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule,
			corev1.TaintEffectNoExecute),
	}
	switch t.Operator {
	case corev1.TolerationOpGt, corev1.TolerationOpLt:
		t.Value = pickOne(d, "bound", "3", "5", "-1")
	case corev1.TolerationOpExists:
		if d.oneIn(4, "cordon") {
			t.Key = pickOne(d, "which", "", corev1.TaintNodeUnschedulable)
		}
	default:
		t.Value = pickOne(d, "value", "", "3", "x")
	}
	return t
}

func (d draws) nodeAffinity(w *World, p *corev1.Pod) {
	if d.oneIn(3, "node selector") {
		p.Spec.NodeSelector = map[string]string{"disk": pickOne(d, "disk", "ssd", "hdd")}
	}
	a := &corev1.NodeAffinity{}
	if d.oneIn(2, "required") {
		a.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{}
		for range 1 + d.upTo(1, "terms") {
			a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms =
				append(a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, d.nodeTerm(w))
		}
	}
	for range d.upTo(2, "preferred") {
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.PreferredSchedulingTerm{Weight: pickOne[int32](d, "weight", 1, 30, 100), Preference: d.nodeTerm(w)})
	}
	p.Spec.Affinity.NodeAffinity = a
}

func (d draws) nodeTerm(w *World) corev1.NodeSelectorTerm {
	var t corev1.NodeSelectorTerm
	for range 1 - d.count(1, "no expression") + d.count(1, "second expression") {
		t.MatchExpressions = append(t.MatchExpressions, pickOne(
			d,
			"expression",
			corev1.NodeSelectorRequirement{
				Key:      corev1.LabelTopologyZone,
				Operator: corev1.NodeSelectorOpIn,
				Values:   zones[:2],
			},
			corev1.NodeSelectorRequirement{
				Key:      corev1.LabelTopologyZone,
				Operator: corev1.NodeSelectorOpNotIn,
				Values:   zones[:1],
			},
			corev1.NodeSelectorRequirement{Key: "disk", Operator: corev1.NodeSelectorOpExists},
			corev1.NodeSelectorRequirement{Key: "disk", Operator: corev1.NodeSelectorOpDoesNotExist},
			corev1.NodeSelectorRequirement{Key: "generation", Operator: corev1.NodeSelectorOpGt, Values: []string{"4"}},
			corev1.NodeSelectorRequirement{
				Key:      "generation",
				Operator: corev1.NodeSelectorOpLt,
				Values:   []string{"5"},
			},
		))
	}
	for range d.count(2, "fields") {
		t.MatchFields = append(t.MatchFields, corev1.NodeSelectorRequirement{
			Key:      metav1.ObjectNameField,
			Operator: pickOne(d, "operator", corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn),
			Values:   []string{pickOne(d, "name", w.Nodes...).Name}})
	}
	return t
}

// terms draws required and preferred terms for other pods.
func (d draws) terms() (required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
	for range d.count(2, "required") {
		required = append(required, d.term())
	}
	for range d.upTo(2, "preferred") {
		preferred = append(preferred,
			corev1.WeightedPodAffinityTerm{Weight: pickOne[int32](d, "weight", 1, 40, 100), PodAffinityTerm: d.term()})
	}
	return required, preferred
}

func (d draws) term() corev1.PodAffinityTerm {
	t := corev1.PodAffinityTerm{
		LabelSelector: d.selector(),
		TopologyKey: pickOne(d, "topology", corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelHostname,
			corev1.LabelTopologyZone, corev1.LabelTopologyRegion),
	}
	if d.oneIn(24, "about nobody") {
		t.LabelSelector = nil
		return t
	}
	if d.oneIn(4, "namespaces") {
		t.Namespaces = namespaces[:1+d.upTo(1, "how many")]
	}
	if d.oneIn(4, "namespace selector") {
		t.NamespaceSelector = pickOne(
			d,
			"which",
			&metav1.LabelSelector{},
			&metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}},
			&metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: "team", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"x"}},
				},
			},
		)
	}
	if d.oneIn(5, "match label keys") {
		t.MatchLabelKeys = []string{"version"}
	} else if d.oneIn(5, "mismatch label keys") {
		t.MismatchLabelKeys = []string{"version"}
	}
	return t
}

func (d draws) spread(p *corev1.Pod) {
	taken := map[string]bool{}
	for range 1 + d.upTo(1, "constraints") {
		c := corev1.TopologySpreadConstraint{
			MaxSkew: pickOne[int32](d, "skew", 1, 1, 2, 3), LabelSelector: d.selector(),
			TopologyKey: pickOne(d, "topology", corev1.LabelTopologyZone, corev1.LabelHostname,
				corev1.LabelTopologyZone, corev1.LabelHostname, corev1.LabelTopologyRegion),
			WhenUnsatisfiable: pickOne(d, "when", corev1.DoNotSchedule, corev1.ScheduleAnyway),
		}
		if key := c.TopologyKey + string(c.WhenUnsatisfiable); taken[key] {
			continue
		} else {
			taken[key] = true
		}
		if c.WhenUnsatisfiable == corev1.DoNotSchedule && d.oneIn(3, "min domains") {
			domains := int32(1 + d.upTo(3, "how many"))
			c.MinDomains = &domains
		}
		honor, ignore := corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore
		c.NodeAffinityPolicy = pickOne(d, "affinity policy", nil, &honor, &ignore)
		c.NodeTaintsPolicy = pickOne(d, "taints policy", nil, &honor, &ignore)
		if d.oneIn(4, "match label keys") {
			c.MatchLabelKeys = []string{"version", "absent"}
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
}

func (d draws) volumes(w *World, p *corev1.Pod) {
	if d.oneIn(20, "image volume") {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "image", VolumeSource: corev1.VolumeSource{
			Image: &corev1.ImageVolumeSource{Reference: images[0].name}}})
	}
	if d.oneIn(200, "missing claim") {
		p.Spec.Volumes = append(p.Spec.Volumes, claimVolume("missing"))
	}
	// without other claims, so that effects of others do not hide the effects of new claims
	fresh := d.oneIn(2, "new claims")
	for _, claim := range w.Claims {
		switch isNew := strings.HasPrefix(claim.Name, "new"); {
		case claim.Namespace != p.Namespace:
		case claim.Name == p.Name+"-scratch" && !fresh:
			p.Spec.Volumes = append(p.Spec.Volumes, scratchVolume())
		case len(claim.OwnerReferences) == 0 && isNew == fresh &&
			d.oneIn(5-3*strings.Count(claim.Name, "new"), "claim"):
			p.Spec.Volumes = append(p.Spec.Volumes, claimVolume(claim.Name))
		}
	}
	if !fresh && w.claim(p.Namespace, p.Name+"-scratch") == nil && d.oneIn(100, "scratch without claim") {
		p.Spec.Volumes = append(p.Spec.Volumes, scratchVolume())
	}
}

func claimVolume(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
}

func scratchVolume() corev1.Volume {
	return corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}
}
