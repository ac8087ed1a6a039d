package daemonset

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"clusterctl/daemons/controllers/loop"
)

// Actions holds the actions that a sync of a set requires.
type Actions struct {
	Create       []string // nodes that need a pod
	Delete       []*corev1.Pod
	Ended        []*corev1.Pod // the pods to delete that have ended and will be replaced
	RequeueAfter time.Duration // sync again after this time; zero means never
}

// Plan returns which pods to create and delete. waits holds, by node, how much longer a failed pod stays.
func Plan(set *appsv1.DaemonSet, at Placements, hash string, now time.Time, waits map[string]time.Duration) Actions {
	var a Actions
	var rolling []*corev1.Pod // the pods that stay on each node, candidates for replacement
	surging := 0
	var surges []string // nodes whose available old pod may get its replacement beside it
	surge := maxSurge(set, at.desired)
	for _, place := range at.perNode {
		shouldRun, here := place.shouldRun, place.pods
		var living []*corev1.Pod
		for _, pod := range here {
			switch {
			case pod.DeletionTimestamp != nil:
			case !place.mayStay:
				a.Delete = append(a.Delete, pod)
			case pod.Status.Phase == corev1.PodFailed:
				if wait := waits[place.node]; wait > 0 {
					if a.RequeueAfter == 0 || wait < a.RequeueAfter {
						a.RequeueAfter = wait
					}
					living = append(living, pod)
				} else {
					a.Ended = append(a.Ended, pod)
				}
			case pod.Status.Phase == corev1.PodSucceeded:
				a.Ended = append(a.Ended, pod)
			default:
				living = append(living, pod)
			}
		}
		// Of several pods, the ready one stays, or else the oldest. While an available old pod runs beside its surged
		// replacement, both stay.
		keep := selectRemaining(living, hash)
		if surge > 0 {
			if pair := surgePair(set, living, hash, now); len(pair) == 2 {
				keep = pair
				surging++
			} else if len(keep) == 1 && shouldRun && !isCurrent(keep[0], hash) && isAvailable(set, keep[0], now) {
				surges = append(surges, place.node)
			}
		}
		for _, pod := range living {
			if !slices.Contains(keep, pod) {
				a.Delete = append(a.Delete, pod)
			}
		}
		if shouldRun && len(here) == 0 {
			a.Create = append(a.Create, place.node)
		}
		if len(keep) > 0 {
			rolling = append(rolling, keep...)
		}
	}
	a.Delete = append(a.Delete, a.Ended...)
	for _, pod := range at.strays {
		// The podgc controller handles a pod that has a node: it asks the API server, since a node that is missing in
		// this cache may exist.
		if pod.DeletionTimestamp == nil && pod.Spec.NodeName == "" {
			a.Delete = append(a.Delete, pod)
		}
	}
	switch {
	case set.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType:
	case surge > 0:
		a.Create = append(a.Create, surges[:min(len(surges), max(surge-surging, 0))]...)
		for _, pod := range rolling {
			if !isCurrent(pod, hash) && !isAvailable(set, pod, now) {
				a.Delete = append(a.Delete, pod) // an unavailable pod serves no traffic
			}
		}
	default:
		a.Delete = append(a.Delete, replaceable(set, rolling, at.desired, hash, now)...)
	}
	return a
}

// surgePair returns the available old pod of a node and the replacement beside it that is not available yet. It returns
// nil if there is no such pair.
func surgePair(set *appsv1.DaemonSet, living []*corev1.Pod, hash string, now time.Time) []*corev1.Pod {
	var old, current []*corev1.Pod
	for _, pod := range living {
		switch isReady := isAvailable(set, pod, now); {
		case isCurrent(pod, hash) && isReady:
			return nil
		case isCurrent(pod, hash):
			current = append(current, pod)
		case isReady:
			old = append(old, pod)
		}
	}
	if len(old) == 0 || len(current) == 0 {
		return nil
	}
	return []*corev1.Pod{selectRemaining(old, hash)[0], selectRemaining(current, hash)[0]}
}

func isAvailable(set *appsv1.DaemonSet, pod *corev1.Pod, now time.Time) bool {
	return loop.IsAvailable(pod, time.Duration(set.Spec.MinReadySeconds)*time.Second, now)
}

// selectRemaining returns the one pod of a node that stays.
func selectRemaining(living []*corev1.Pod, hash string) []*corev1.Pod {
	if len(living) <= 1 {
		return living
	}
	sorted := slices.Clone(living)
	slices.SortFunc(sorted, func(a, b *corev1.Pod) int {
		readyA, _ := loop.IsReady(a)
		readyB, _ := loop.IsReady(b)
		return cmp.Or(compareTrueFirst(readyA, readyB), compareTrueFirst(isCurrent(a, hash), isCurrent(b, hash)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	return sorted[:1]
}

// replaceable returns the outdated pods that may be deleted now: unavailable ones at once, available ones as far as
// maxUnavailable allows.
func replaceable(set *appsv1.DaemonSet, pods []*corev1.Pod, wanted int, hash string, now time.Time) []*corev1.Pod {
	room := maxUnavailable(set, wanted)
	minReady := time.Duration(set.Spec.MinReadySeconds) * time.Second
	var broken, working []*corev1.Pod
	available := 0
	for _, pod := range pods {
		isAvailable := loop.IsAvailable(pod, minReady, now)
		if isAvailable {
			available++
		}
		switch {
		case isCurrent(pod, hash):
		case isAvailable:
			working = append(working, pod)
		default:
			broken = append(broken, pod)
		}
	}
	room -= max(wanted-available, 0)
	if room > 0 {
		broken = append(broken, working[:min(room, len(working))]...)
	}
	return broken
}

// maxSurge returns on how many nodes an old pod and its replacement may run together. Zero means that the old pod is
// deleted first.
func maxSurge(set *appsv1.DaemonSet, wanted int) int {
	r := set.Spec.UpdateStrategy.RollingUpdate
	if r == nil || r.MaxSurge == nil || set.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(r.MaxSurge, wanted, true)
	if err != nil {
		return 0
	}
	return n
}

func maxUnavailable(set *appsv1.DaemonSet, wanted int) int {
	one := intstr.FromInt32(1)
	value := &one
	if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil && r.MaxUnavailable != nil {
		value = r.MaxUnavailable
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(value, wanted, true)
	if err != nil || n < 1 {
		return 1
	}
	return n
}

func compareTrueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
