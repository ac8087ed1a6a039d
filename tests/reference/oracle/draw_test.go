package oracle

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

// drawnWorld is the result of Draw.
type drawnWorld struct {
	world *World
	pods  []*corev1.Pod
}

var anyWorld = rapid.Custom(func(t *rapid.T) drawnWorld {
	w, pods := Draw(t)
	return drawnWorld{w, pods}
})

// refusalTexts are all refusals of filters, with their plugins. Names in texts are those that Draw uses.
var refusalTexts = []string{
	`DynamicResources: cannot allocate all claims`,
	`NodeAffinity: node(s) didn't match Pod's node affinity/selector`,
	`NodeAffinity: node(s) didn't match scheduler-enforced node affinity`,
	`NodeAffinity: node(s) didn't satisfy plugin(s) [NodeAffinity]`,
	`NodeAffinity: pod affinity terms conflict`,
	`NodeDeclaredFeatures: node(s) didn't match Pod's required features`,
	`NodePorts: node(s) didn't have free ports for the requested pod ports`,
	`NodeResourcesFit: Insufficient cpu`,
	`NodeResourcesFit: Insufficient deviceclass.resource.kubernetes.io/a`,
	`NodeResourcesFit: Insufficient ephemeral-storage`,
	`NodeResourcesFit: Insufficient example.com/gpu`,
	`NodeResourcesFit: Insufficient hugepages-2Mi`,
	`NodeResourcesFit: Insufficient memory`,
	`NodeResourcesFit: Too many pods`,
	`NodeUnschedulable: node(s) were unschedulable`,
	`NodeVolumeLimits: csi.example.com CSI driver is not installed on the node`,
	`NodeVolumeLimits: node(s) exceed max volume count`,
	`InterPodAffinity: node(s) didn't match pod affinity rules`,
	`InterPodAffinity: node(s) didn't match pod anti-affinity rules`,
	`InterPodAffinity: node(s) didn't satisfy existing pods anti-affinity rules`,
	`PodTopologySpread: node(s) didn't match pod topology spread constraints`,
	`PodTopologySpread: node(s) didn't match pod topology spread constraints (missing required label)`,
	`TaintToleration: node(s) had untolerated taint(s)`,
	`VolumeBinding: PVC a/p0-scratch was not created for pod a/p0 (pod is not owner)`,
	`VolumeBinding: node(s) didn't find available persistent volumes to bind`,
	`VolumeBinding: node(s) did not have enough free storage`,
	`VolumeBinding: node(s) didn't match PersistentVolume's node affinity`,
	`VolumeBinding: node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)`,
	`VolumeBinding: persistentvolumeclaim "claim0" bound to non-existent persistentvolume "gone"`,
	`VolumeBinding: persistentvolumeclaim "claim0" is being deleted`,
	`VolumeBinding: pod has unbound immediate PersistentVolumeClaims`,
	`VolumeBinding: waiting for ephemeral volume controller to create the persistentvolumeclaim "p0-scratch"`,
	`VolumeRestrictions: node(s) had no available disk`,
	`VolumeRestrictions: node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode`,
	`VolumeRestrictions: persistentvolumeclaim "missing" not found`,
	`VolumeZone: node(s) had no available volume zone`,
	`VolumeZone: persistentvolume "gone" not found`,
}

// A comparison with drawn clusters proves nothing about cases that are never drawn.
func TestDrawReachesEveryRefusalAndEveryScore(t *testing.T) {
	const worlds = 4000
	outcomes, differs := map[string]int{}, map[string]int{}
	var fits, nowhere, onlyWithout, preempts, choices, budgets int
	for seed := range worlds {
		d := anyWorld.Example(seed)
		for _, pod := range d.pods {
			verdicts := d.world.Evaluate(pod)
			scores, some := map[string]map[int64]bool{}, false
			for i, v := range verdicts {
				for _, reason := range v.Reasons {
					outcomes[v.Plugin+": "+reason]++
				}
				if v.Plugin == "" {
					some = true
					fits++
				} else if c := d.world.simulate(pod); c.prefilter(pod) == nil &&
					excludedByName(pod, d.world.Nodes[i]) == nil &&
					c.filter(pod, d.world.Nodes[i]) == nil {
					onlyWithout++
				}
				for plugin, score := range v.Scores {
					if scores[plugin] == nil {
						scores[plugin] = map[int64]bool{}
					}
					scores[plugin][score] = true
				}
			}
			for plugin, different := range scores {
				if len(different) > 1 {
					differs[plugin]++
				}
			}
			if some {
				continue
			}
			nowhere++
			node, victims, ok := d.world.Preempt(pod)
			if !ok {
				continue
			}
			preempts++
			if len(victims) > 1 {
				choices++
			}
			if n, ok := d.world.simulate(pod).victims(pod, d.world.node(node)); ok && n.violations > 0 {
				budgets++
			}
		}
	}
	for _, text := range refusalTexts {
		if outcomes[text] == 0 {
			t.Errorf("never drawn: %s", text)
		}
	}
	for _, s := range scorers {
		if differs[s.plugin] < worlds/100 {
			t.Errorf("%s ranks nodes differently in %d of %d worlds", s.plugin, differs[s.plugin], worlds)
		}
	}
	for what, n := range map[string]int{
		"nodes that fit": fits, "pods that fit nowhere": nowhere, "nodes that only nominated pods fill": onlyWithout,
		"preemptions": preempts, "preemptions of several": choices, "preemptions against a budget": budgets,
	} {
		if n < worlds/100 {
			t.Errorf("%s: %d in %d worlds", what, n, worlds)
		}
	}
	for _, text := range slices.Sorted(maps.Keys(outcomes)) {
		t.Logf("%6d %s", outcomes[text], text)
	}
	t.Log(differs, fits, nowhere, onlyWithout, preempts, choices, budgets)
}

func BenchmarkJudge(b *testing.B) {
	var worlds []drawnWorld
	for seed := range 100 {
		worlds = append(worlds, anyWorld.Example(seed))
	}
	for i := 0; b.Loop(); i++ {
		d := worlds[i%len(worlds)]
		d.world.Evaluate(d.pods[0])
	}
}

func BenchmarkDraw(b *testing.B) {
	for i := 0; b.Loop(); i++ {
		anyWorld.Example(i)
	}
}
