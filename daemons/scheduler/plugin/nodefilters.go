package plugin

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"clusterctl/daemons/api"
)

// unschedulable refuses cordoned nodes to pods that do not put up with it.
func unschedulable(pod *Pod, _ *Snapshot) Check {
	taint := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	if tolerated(pod.Spec.Tolerations, &taint) {
		return nil
	}
	return func(n *Node) []string {
		if n.Spec.Unschedulable {
			return []string{"node(s) were unschedulable"}
		}
		return nil
	}
}

// nodeName refuses all nodes but the one that the pod names.
func nodeName(pod *Pod, _ *Snapshot) Check {
	if pod.Spec.NodeName == "" {
		return nil
	}
	return func(n *Node) []string {
		if n.Name != pod.Spec.NodeName {
			return []string{"node(s) didn't match the requested node name"}
		}
		return nil
	}
}

// taints refuses nodes with taints that the pod does not tolerate.
func taints(pod *Pod, _ *Snapshot) Check {
	return func(n *Node) []string {
		for i := range n.Spec.Taints {
			t := &n.Spec.Taints[i]
			if t.Effect != corev1.TaintEffectPreferNoSchedule && !tolerated(pod.Spec.Tolerations, t) {
				return []string{"node(s) had untolerated taint(s)"}
			}
		}
		return nil
	}
}

func tolerated(tolerations []corev1.Toleration, t *corev1.Taint) bool {
	for i := range tolerations {
		if api.Tolerates(&tolerations[i], t) {
			return true
		}
	}
	return false
}

// preferUntainted counts the taints that only advise against a node.
func preferUntainted(pod *Pod, _ *Snapshot) Rate {
	return func(n *Node) int64 {
		var count int64
		for i := range n.Spec.Taints {
			t := &n.Spec.Taints[i]
			if t.Effect == corev1.TaintEffectPreferNoSchedule && !tolerated(pod.Spec.Tolerations, t) {
				count++
			}
		}
		return count
	}
}

// nodeAffinity refuses nodes that the pod's selector or required affinity excludes.
func nodeAffinity(pod *Pod, _ *Snapshot) Check {
	affinity := pod.Spec.Affinity
	if len(pod.Spec.NodeSelector) == 0 && (affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil) {
		return nil
	}
	required := nodeaffinity.GetRequiredNodeAffinity(pod.Pod)
	return func(n *Node) []string {
		if ok, err := required.Match(n.Node); !ok || err != nil {
			return []string{"node(s) didn't match Pod's node affinity/selector"}
		}
		return nil
	}
}

// preferredNodes adds up the weights of the preferences that a node meets.
func preferredNodes(pod *Pod, _ *Snapshot) Rate {
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || len(affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) == 0 {
		return nil
	}
	preferred, err := nodeaffinity.NewPreferredSchedulingTerms(affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	if err != nil {
		return nil // validation let it pass: no preference can be read from it
	}
	return func(n *Node) int64 { return preferred.Score(n.Node) }
}

// ports refuses nodes on which a port that the pod wants of the machine is taken.
func ports(pod *Pod, _ *Snapshot) Check {
	if len(pod.HostPort) == 0 {
		return nil
	}
	return func(n *Node) []string {
		for _, want := range pod.HostPort {
			for have := range n.ports {
				if clash(want, have) {
					return []string{"node(s) didn't have free ports for the requested pod ports"}
				}
			}
		}
		return nil
	}
}

func clash(a, b HostPort) bool {
	return a.Port == b.Port && a.Protocol == b.Protocol && (a.IP == b.IP || a.IP == "0.0.0.0" || b.IP == "0.0.0.0")
}

// imageLocality prefers nodes that have the pod's larger images already. An image counts for
// less when few nodes have it, so that a node which was the first to run something does not
// get all the rest of it.
func imageLocality(pod *Pod, s *Snapshot) Rate {
	const (
		small = int64(23 << 20)
		large = int64(1000 << 20)
	)
	var names []string
	for i := range pod.Spec.InitContainers {
		names = append(names, fullName(pod.Spec.InitContainers[i].Image))
	}
	for i := range pod.Spec.Containers {
		names = append(names, fullName(pod.Spec.Containers[i].Image))
	}
	on, known := make([]int64, len(names)), false
	for _, n := range s.Nodes {
		for i, name := range names {
			if _, there := n.images[name]; there {
				on[i]++
				known = true
			}
		}
	}
	if !known {
		return nil
	}
	most, nodes := large*int64(len(names)), float64(len(s.Nodes))
	return func(n *Node) int64 {
		var sum int64
		for i, name := range names {
			sum += int64(float64(n.images[name]) * float64(on[i]) / nodes)
		}
		sum = min(max(sum, small), most)
		return MaxScore * (sum - small) / (most - small)
	}
}

// fullName adds the tag that an image without one means.
func fullName(image string) string {
	for i := len(image) - 1; i >= 0; i-- {
		switch image[i] {
		case ':', '@':
			return image
		case '/':
			return image + ":latest"
		}
	}
	return image + ":latest"
}
