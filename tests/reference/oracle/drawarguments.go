package oracle

import (
	corev1 "k8s.io/api/core/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"
)

// arguments draws plugin arguments, which are mostly the defaults.
func (d draws) arguments(w *World) {
	a := &w.Arguments
	if d.oneIn(3, "fit") {
		a.Fit = &configv1.NodeResourcesFitArgs{}
		switch d.upTo(3, "ignored") {
		case 1:
			a.Fit.IgnoredResources = []string{string(gpu)}
		case 2:
			a.Fit.IgnoredResourceGroups = []string{"example.com"}
		case 3:
			a.Fit.IgnoredResourceGroups = []string{"example.com", "deviceclass.resource.kubernetes.io"}
		}
		s := &configv1.ScoringStrategy{Resources: d.resources(3)}
		s.Type = pickOne(d, "strategy", configv1.LeastAllocated, configv1.MostAllocated,
			configv1.RequestedToCapacityRatio)
		if s.Type == configv1.RequestedToCapacityRatio {
			s.RequestedToCapacityRatio = &configv1.RequestedToCapacityRatioParam{Shape: d.shape()}
		}
		a.Fit.ScoringStrategy = s
	}
	if d.oneIn(4, "balanced") {
		a.Balanced = &configv1.NodeResourcesBalancedAllocationArgs{Resources: d.resources(1)}
	}
	if d.oneIn(10, "added affinity") {
		a.Nodes = &configv1.NodeAffinityArgs{AddedAffinity: &corev1.NodeAffinity{}}
		if d.oneIn(3, "required") {
			a.Nodes.AddedAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{d.nodeTerm(w)}}
		}
		for range d.upTo(2, "preferred") {
			a.Nodes.AddedAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(
				a.Nodes.AddedAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
				corev1.PreferredSchedulingTerm{Weight: pickOne[int32](d, "weight", 1, 30, 100),
					Preference: d.nodeTerm(w)})
		}
	}
	if d.oneIn(4, "pods' affinity") {
		weight := pickOne[int32](d, "weight", 0, 1, 50)
		a.Pods = &configv1.InterPodAffinityArgs{
			HardPodAffinityWeight:              &weight,
			IgnorePreferredTermsOfExistingPods: d.oneIn(2, "ignore theirs"),
		}
	}
	if d.oneIn(3, "defaults") {
		a.Spread = &configv1.PodTopologySpreadArgs{
			DefaultingType: pickOne(d, "type", configv1.ListDefaulting, configv1.ListDefaulting,
				configv1.SystemDefaulting),
		}
		if a.Spread.DefaultingType == configv1.ListDefaulting {
			p := &corev1.Pod{}
			d.spread(p)
			for _, t := range p.Spec.TopologySpreadConstraints {
				t.LabelSelector, t.MatchLabelKeys = nil, nil
				a.Spread.DefaultConstraints = append(a.Spread.DefaultConstraints, t)
			}
		}
	}
	if d.oneIn(2, "volumes") {
		a.Volumes = &configv1.VolumeBindingArgs{Shape: d.shape()}
	}
}

// resources returns some resources with weights up to most.
func (d draws) resources(most int) []configv1.ResourceSpec {
	var list []configv1.ResourceSpec
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory,
		corev1.ResourceEphemeralStorage, gpu} {
		if !d.oneIn(3, "without") {
			list = append(list, configv1.ResourceSpec{Name: string(name), Weight: int64(1 + d.upTo(most-1, "weight"))})
		}
	}
	return list
}

func (d draws) shape() []configv1.UtilizationShapePoint {
	shape := []configv1.UtilizationShapePoint{{Utilization: 0, Score: int32(d.upTo(10, "at 0"))}}
	if d.oneIn(2, "in between") {
		shape = append(
			shape,
			configv1.UtilizationShapePoint{
				Utilization: int32(1 + d.upTo(97, "where")),
				Score:       int32(d.upTo(10, "there")),
			},
		)
	}
	return append(shape, configv1.UtilizationShapePoint{Utilization: 100, Score: int32(d.upTo(10, "at 100"))})
}
