package nodeagent

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Proves S02.
func TestStatusChangesAreRecordedAsEvents(t *testing.T) {
	status := func(boot, memory, disk, pids, ready string) *corev1.NodeStatus {
		s := &corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: boot}}
		for i, after := range []string{memory, disk, pids, ready} {
			if after != "" {
				kind := []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure,
					corev1.NodePIDPressure, corev1.NodeReady}[i]
				s.Conditions = append(s.Conditions,
					corev1.NodeCondition{Type: kind, Status: corev1.ConditionStatus(after)})
			}
		}
		return s
	}
	well := status("a", "False", "False", "False", "True")
	for name, c := range map[string]struct {
		before, after *corev1.NodeStatus
		want          []string
	}{
		"it begins": {status("", "", "", "", ""), status("a", "False", "False", "False", "False"),
			[]string{"Normal NodeHasSufficientMemory", "Normal NodeHasNoDiskPressure", "Normal NodeHasSufficientPID"}},
		"it becomes ready": {status("a", "False", "False", "False", "False"), well, []string{"Normal NodeReady"}},
		"nothing":          {well, well, nil},
		"all goes wrong": {well, status("a", "True", "True", "True", "False"),
			[]string{"Normal NodeHasInsufficientMemory", "Normal NodeHasDiskPressure", "Normal NodeHasInsufficientPID",
				"Normal NodeNotReady"}},
		"it was silent": {status("a", "Unknown", "Unknown", "Unknown", "Unknown"), well,
			[]string{"Normal NodeHasSufficientMemory", "Normal NodeHasNoDiskPressure", "Normal NodeHasSufficientPID",
				"Normal NodeReady"}},
		"it was rebooted": {well, status("b", "False", "False", "False", "True"), []string{"Warning Rebooted"}},
		"it says no boot": {well, status("", "False", "False", "False", "True"), nil},
		"the pressure ends": {status("a", "True", "False", "False", "True"), well,
			[]string{"Normal NodeHasSufficientMemory"}},
	} {
		var got []string
		for _, e := range nodeEvents("n1", c.before, c.after) {
			got = append(got, e.kind+" "+e.reason)
			want := fmt.Sprintf("Node n1 status is now: %s", e.reason)
			if e.reason == "Rebooted" {
				want = "Node n1 has been rebooted, boot id: b"
			}
			if e.message != want {
				t.Errorf("%s: it says %q", name, e.message)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
