package check

import (
	"fmt"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// World is the cluster at one moment.
type World struct {
	At         time.Time
	Pods       []corev1.Pod
	Nodes      []corev1.Node
	Owners     map[string]metav1.Time         // UIDs of all objects that own others, with their creation times
	Dependents []metav1.ObjectMeta            // metadata of objects that have owners
	Running    map[string]map[string][]string // ids of running containers, by machine and by UID of their pod
	Trusted    map[string]bool                // machines that were without a fault for the settling time before At
}

// Invariants checks a series of snapshots for conditions that must always hold, or must hold again after Settling.
type Invariants struct {
	Settling time.Duration

	since    map[string]time.Time // when a violation that may pass was first seen, by its text
	restarts map[string]int32     // by pod UID and container
	reported map[string]bool
}

// Check checks a snapshot and remembers it for the next. Each violation is returned once.
func (i *Invariants) Check(w World) []string {
	if i.since == nil {
		i.since, i.restarts, i.reported = map[string]time.Time{}, map[string]int32{}, map[string]bool{}
	}
	wrong := map[string]bool{} // the value is true if the violation may pass
	pods := map[string]*corev1.Pod{}
	for n := range w.Pods {
		pods[string(w.Pods[n].UID)] = &w.Pods[n]
	}
	places := map[string][]string{}
	for machine, running := range w.Running {
		for uid, containers := range running {
			places[uid] = append(places[uid], machine)
			pod := pods[uid]
			switch {
			case !w.Trusted[machine]:
			case pod == nil:
				wrong[fmt.Sprintf("containers %v run on %s for pod %s, which is not in the "+
					"API", containers, machine, uid)] = true
			case pod.Spec.NodeName != machine:
				wrong[fmt.Sprintf("pod %s/%s runs on %s and belongs on %q", pod.Namespace, pod.Name, machine,
					pod.Spec.NodeName)] = false
			}
		}
	}
	for uid, machines := range places {
		if sort.Strings(machines); len(machines) > 1 {
			wrong[fmt.Sprintf("pod %s runs on %v at once", uid, machines)] = false
		}
	}
	i.checkRequests(w, wrong)
	for _, d := range w.Dependents {
		for _, o := range d.OwnerReferences {
			made, here := w.Owners[string(o.UID)]
			if !here {
				wrong[fmt.Sprintf("%s/%s is owned by %s %s (%s), which is gone", d.Namespace, d.Name, o.Kind, o.Name,
					o.UID)] = true
			} else if d.CreationTimestamp.Before(&made) {
				wrong[fmt.Sprintf("%s/%s was made before its owner %s %s", d.Namespace, d.Name, o.Kind, o.Name)] = false
			}
		}
	}
	i.checkRestarts(w, wrong)
	var findings []string
	for text, passes := range wrong {
		first, before := i.since[text]
		if !before {
			first = w.At
			i.since[text] = first
		}
		if (!passes || w.At.Sub(first) >= i.Settling) && !i.reported[text] {
			i.reported[text] = true
			findings = append(findings, text)
		}
	}
	for text := range i.since {
		if _, still := wrong[text]; !still {
			delete(i.since, text)
		}
	}
	sort.Strings(findings)
	return findings
}

// checkRequests checks that the pods bound to a node do not request more than its allocatable resources.
func (i *Invariants) checkRequests(w World, wrong map[string]bool) {
	for _, node := range w.Nodes {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			var sum resource.Quantity
			for _, p := range w.Pods {
				if p.Spec.NodeName != node.Name || p.Status.Phase == corev1.PodSucceeded ||
					p.Status.Phase == corev1.PodFailed {
					continue
				}
				for _, c := range p.Spec.Containers {
					sum.Add(c.Resources.Requests[name])
				}
			}
			if can := node.Status.Allocatable[name]; sum.Cmp(can) > 0 {
				wrong[fmt.Sprintf("the pods of %s ask for %s of %s, and it has "+
					"%s", node.Name, sum.String(), name, can.String())] = false
			}
		}
	}
}

// checkRestarts finds containers that restarted on machines without a fault.
func (i *Invariants) checkRestarts(w World, wrong map[string]bool) {
	for _, p := range w.Pods {
		for _, s := range p.Status.ContainerStatuses {
			key := string(p.UID) + "/" + s.Name
			before, ok := i.restarts[key]
			i.restarts[key] = s.RestartCount
			if ok && s.RestartCount > before && w.Trusted[p.Spec.NodeName] {
				wrong[fmt.Sprintf("container %s of %s/%s on %s was restarted (%d "+
					"times)", s.Name, p.Namespace, p.Name, p.Spec.NodeName, s.RestartCount)] = false
			}
		}
	}
}
