package nodeagent

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// nodeEvent is an event about the node.
type nodeEvent struct{ kind, reason, message string }

// pressureReasons are the reasons of the events that report that a pressure starts, ends or was not known before. They
// are in the order of the conditions.
var pressureReasons = []struct {
	condition    corev1.NodeConditionType
	begins, ends string
}{
	{corev1.NodeMemoryPressure, "NodeHasInsufficientMemory", "NodeHasSufficientMemory"},
	{corev1.NodeDiskPressure, "NodeHasDiskPressure", "NodeHasNoDiskPressure"},
	{corev1.NodePIDPressure, "NodeHasInsufficientPID", "NodeHasSufficientPID"},
}

// nodeEvents returns the events for the difference between two node statuses. The first report of readiness is not an
// event.
func nodeEvents(name string, old, updated *corev1.NodeStatus) []nodeEvent {
	var list []nodeEvent
	if old.NodeInfo.BootID != "" && updated.NodeInfo.BootID != "" && old.NodeInfo.BootID != updated.NodeInfo.BootID {
		list = append(
			list,
			nodeEvent{
				corev1.EventTypeWarning,
				"Rebooted",
				fmt.Sprintf("Node %s has been rebooted, boot id: %s", name, updated.NodeInfo.BootID),
			},
		)
	}
	status := func(s *corev1.NodeStatus, kind corev1.NodeConditionType) corev1.ConditionStatus {
		for _, c := range s.Conditions {
			if c.Type == kind {
				return c.Status
			}
		}
		return ""
	}
	record := func(reason string) { list = append(list, statusEvent(name, reason)) }
	for _, p := range pressureReasons {
		switch now := status(updated, p.condition); {
		case now == status(old, p.condition):
		case now == corev1.ConditionTrue:
			record(p.begins)
		case now == corev1.ConditionFalse:
			record(p.ends)
		}
	}
	switch before, now := status(old, corev1.NodeReady), status(updated, corev1.NodeReady); {
	case before == "" || before == now:
	case now == corev1.ConditionTrue:
		record("NodeReady")
	default:
		record("NodeNotReady")
	}
	return list
}

func statusEvent(name, reason string) nodeEvent {
	return nodeEvent{corev1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", name, reason)}
}

// recordStatusEvents records events for what a written status has changed. Simulated nodes skip their first status,
// because they are created by the thousand.
func (a *Agent) recordStatusEvents(before, after *corev1.NodeStatus) {
	if a.Simulated && len(before.Conditions) == 0 {
		return
	}
	for _, e := range nodeEvents(a.Name, before, after) {
		a.recordNodeEvent(e)
	}
}

// recordSchedulableEvent records an event when the node was cordoned or uncordoned.
func (a *Agent) recordSchedulableEvent(node *corev1.Node) {
	if node.Spec.Unschedulable == a.lastCordoned {
		return
	}
	if a.lastCordoned = node.Spec.Unschedulable; a.lastCordoned {
		a.recordNodeEvent(statusEvent(a.Name, "NodeNotSchedulable"))
	} else {
		a.recordNodeEvent(statusEvent(a.Name, "NodeSchedulable"))
	}
}

func (a *Agent) recordNodeEvent(e nodeEvent) {
	ref := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: a.Name, UID: types.UID(a.Name)}
	a.events.Event(ref, e.kind, e.reason, e.message)
}
