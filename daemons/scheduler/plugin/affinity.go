package plugin

// place is one value of one topology key: {"topology.kubernetes.io/zone", "a"}.
type place struct{ key, value string }

// podAffinity refuses nodes that are not near the pods which the pod wants near, that
// are near those which it does not, or near those which do not want it.
func podAffinity(pod *Pod, s *Snapshot) Check {
	shunned := map[place]bool{} // where pods are that do not want this one
	anyone := len(pod.affinity)+len(pod.antiAffinity) > 0
	for _, n := range s.Nodes {
		if n.affine == 0 {
			continue
		}
		for _, other := range n.Pods {
			for i := range other.antiAffinity {
				t := &other.antiAffinity[i]
				if v, ok := n.Labels[t.key]; ok && t.chooses(pod.Pod, s) {
					shunned[place{t.key, v}] = true
				}
			}
		}
	}
	if !anyone && len(shunned) == 0 {
		return nil
	}
	near := make([]map[string]bool, len(pod.affinity))
	far := make([]map[string]bool, len(pod.antiAffinity))
	for i := range near {
		near[i] = where(&pod.affinity[i], s)
	}
	for i := range far {
		far[i] = where(&pod.antiAffinity[i], s)
	}
	// The first pod of a group that wants to be together may go anywhere.
	first := len(pod.affinity) > 0
	for i := range near {
		first = first && len(near[i]) == 0 && pod.affinity[i].chooses(pod.Pod, s)
	}
	return func(n *Node) []string {
		for i := range pod.affinity {
			v, ok := n.Labels[pod.affinity[i].key]
			if !ok || !near[i][v] && !first {
				return []string{"node(s) didn't match pod affinity rules"}
			}
		}
		for i := range pod.antiAffinity {
			if v, ok := n.Labels[pod.antiAffinity[i].key]; ok && far[i][v] {
				return []string{"node(s) didn't match pod anti-affinity rules"}
			}
		}
		if len(shunned) > 0 {
			for key, v := range n.Labels {
				if shunned[place{key, v}] {
					return []string{"node(s) didn't satisfy existing pods anti-affinity rules"}
				}
			}
		}
		return nil
	}
}

// where returns the values of the term's topology key at which a pod is that it chooses.
func where(t *term, s *Snapshot) map[string]bool {
	out := map[string]bool{}
	for _, n := range s.Nodes {
		v, ok := n.Labels[t.key]
		if !ok || out[v] {
			continue
		}
		for _, p := range n.Pods {
			if p.DeletionTimestamp == nil && t.chooses(p.Pod, s) {
				out[v] = true
				break
			}
		}
	}
	return out
}

// preferredPods adds up what being near other pods is worth to them and to this one.
func preferredPods(pod *Pod, s *Snapshot) Rate {
	worth := map[place]int64{}
	add := func(n *Node, key string, weight int64) {
		if v, ok := n.Labels[key]; ok {
			worth[place{key, v}] += weight
		}
	}
	wants := len(pod.preferredAffinity)+len(pod.preferredAntiAffinity) > 0
	for _, n := range s.Nodes {
		if !wants && n.affine == 0 {
			continue
		}
		for _, other := range n.Pods {
			for i := range pod.preferredAffinity {
				if t := &pod.preferredAffinity[i]; t.chooses(other.Pod, s) {
					add(n, t.key, t.weight)
				}
			}
			for i := range pod.preferredAntiAffinity {
				if t := &pod.preferredAntiAffinity[i]; t.chooses(other.Pod, s) {
					add(n, t.key, -t.weight)
				}
			}
			for i := range other.preferredAffinity {
				if t := &other.preferredAffinity[i]; t.chooses(pod.Pod, s) {
					add(n, t.key, t.weight)
				}
			}
			for i := range other.preferredAntiAffinity {
				if t := &other.preferredAntiAffinity[i]; t.chooses(pod.Pod, s) {
					add(n, t.key, -t.weight)
				}
			}
			for i := range other.affinity { // whoever must be near would be glad of it
				if t := &other.affinity[i]; t.chooses(pod.Pod, s) {
					add(n, t.key, 1)
				}
			}
		}
	}
	if len(worth) == 0 {
		return nil
	}
	return func(n *Node) int64 {
		var sum int64
		for at, weight := range worth {
			if v, ok := n.Labels[at.key]; ok && v == at.value {
				sum += weight
			}
		}
		return sum
	}
}
