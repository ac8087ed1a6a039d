package provisioner

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

// conditionsOf returns the types of a claim's conditions in order.
func conditionsOf(c *corev1.PersistentVolumeClaim) string {
	var kinds []string
	for _, x := range c.Status.Conditions {
		kinds = append(kinds, string(x.Type))
	}
	return strings.Join(kinds, " ")
}

// The test covers a claim's status while its volume grows, after temporary and permanent failures, and after the
// request is reduced.
//
//style:long a table of steps of one claim, with what is checked after each
func TestClaimStatusDuringExpansion(t *testing.T) {
	claim := newClaimOn("n")
	v, err := NewVolume(claim, newClass(), newNode(map[string]string{"kubernetes.io/hostname": "n"}))
	if err != nil {
		t.Fatal(err)
	}
	claim.Spec.VolumeName, claim.Spec.Resources.Requests = v.Name, storageSize("1Gi")
	claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: storageSize("1Gi")}
	v.Spec.Capacity = storageSize("1Gi")
	client := fake.NewClientset(claim, v)
	events := record.NewFakeRecorder(20)
	var requests int64
	var answer error
	p := &controller{Context: loop.Context{Client: client, Events: events, Log: slog.New(slog.DiscardHandler)},
		grow: func(_ context.Context, node, volume string, bytes int64) error {
			if node != "n" || volume != v.Name {
				t.Errorf("node %s is asked for %s", node, volume)
			}
			requests = bytes
			return answer
		}}
	invalid := &apierrors.StatusError{
		ErrStatus: metav1.Status{
			Status:  metav1.StatusFailure,
			Reason:  metav1.StatusReasonInvalid,
			Message: "the file system is smaller",
		},
	}
	for _, step := range []struct {
		name, request string
		answer        error
		requested     string
		capacity      string // of the claim
		volume        string
		state         corev1.ClaimResourceStatus
		allocated     string
		conditions    string
		event         string
	}{
		{"nothing is asked for", "1Gi", nil, "0", "1Gi", "1Gi", "", "0", "", ""},
		{"the node is away", "2Gi", errors.New("dial"), "2Gi", "1Gi", "1Gi", "ControllerResizeInProgress", "2Gi",
			"Resizing ControllerResizeError",
			`Warning VolumeResizeFailed resize volume "` + v.Name + `" by resizer "clusterctl.local/directory" failed: dial`},
		{"it is back", "2Gi", nil, "2Gi", "2Gi", "2Gi", "", "2Gi", "", "Normal VolumeResizeSuccessful Resize volume " +
			"succeeded"},
		{"the disk is smaller", "9Ti", invalid, "9Ti", "2Gi", "2Gi", "ControllerResizeInfeasible", "9Ti",
			"Resizing ControllerResizeError", "Warning VolumeResizeFailed"},
		{"it is still", "9Ti", invalid, "9Ti", "2Gi", "2Gi", "ControllerResizeInfeasible", "9Ti",
			"Resizing ControllerResizeError", "Warning VolumeResizeFailed"},
		{"less will do", "3Gi", nil, "3Gi", "3Gi", "3Gi", "", "3Gi", "", "Normal VolumeResizeSuccessful"},
	} {
		got, err := client.CoreV1().
			PersistentVolumeClaims(claim.Namespace).
			Get(t.Context(), claim.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got.Spec.Resources.Requests = storageSize(step.request)
		if got, err = client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(t.Context(), got,
			metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		vol, err := client.CoreV1().PersistentVolumes().Get(t.Context(), v.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		requests, answer = 0, step.answer
		if err := p.expand(t.Context(), got, vol); (err != nil) != (step.answer != nil) {
			t.Errorf("%s: %v", step.name, err)
		}
		got, _ = client.CoreV1().
			PersistentVolumeClaims(claim.Namespace).
			Get(t.Context(), claim.Name, metav1.GetOptions{})
		vol, _ = client.CoreV1().PersistentVolumes().Get(t.Context(), v.Name, metav1.GetOptions{})
		want := storageSize(step.requested)[corev1.ResourceStorage]
		allocated := got.Status.AllocatedResources[corev1.ResourceStorage]
		if requests != want.Value() || got.Status.Capacity.Storage().String() != step.capacity ||
			vol.Spec.Capacity.Storage().String() != step.volume ||
			got.Status.AllocatedResourceStatuses[corev1.ResourceStorage] != step.state ||
			allocated.String() != step.allocated ||
			conditionsOf(got) != step.conditions {
			t.Errorf("%s: %d is asked for, the claim says %+v, the volume %v", step.name, requests, got.Status,
				vol.Spec.Capacity)
		}
		last := ""
		for len(events.Events) > 0 {
			last = <-events.Events
		}
		if !strings.HasPrefix(last, step.event) || step.event == "" && last != "" {
			t.Errorf("%s: the last event is %q", step.name, last)
		}
	}
}

func TestAttributesClassesAreRefusedWithAReason(t *testing.T) {
	ours := &storagev1.VolumeAttributesClass{DriverName: "clusterctl.local/directory"}
	theirs := &storagev1.VolumeAttributesClass{DriverName: "example.com/other"}
	for name, c := range map[string]struct {
		wants  *string
		class  *storagev1.VolumeAttributesClass
		before bool // it was reported as infeasible
		state  corev1.PersistentVolumeClaimModifyVolumeStatus
		reason string
	}{
		"none":               {nil, nil, false, "", ""},
		"the empty one":      {ptr(""), nil, false, "", ""},
		"one that is not":    {ptr("gold"), nil, false, "Pending", "VAC gold does not exist."},
		"another driver's":   {ptr("gold"), theirs, false, "Infeasible", "example.com/other"},
		"one of ours":        {ptr("gold"), ours, false, "Infeasible", "no attributes"},
		"again":              {ptr("gold"), ours, true, "Infeasible", "no attributes"},
		"it has given it up": {nil, nil, true, "", ""},
	} {
		claim := newClaimOn("n")
		claim.Spec.VolumeAttributesClassName = c.wants
		if c.before {
			claim.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{
				TargetVolumeAttributesClassName: "gold",
				Status:                          "Infeasible",
			}
			claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{
				{Type: corev1.PersistentVolumeClaimVolumeModifyVolumeError, Status: "True"},
			}
		}
		s, reason := AttributesStatus(claim, c.class, metav1.Now().Time)
		state, conditions := corev1.PersistentVolumeClaimModifyVolumeStatus(""), ""
		if s.ModifyVolumeStatus != nil {
			state, conditions = s.ModifyVolumeStatus.Status, "ModifyVolumeError"
		}
		claim.Status = s
		if state != c.state || !strings.Contains(reason, c.reason) || (reason == "") != (c.reason == "") ||
			conditionsOf(claim) != conditions {
			t.Errorf("%s: %+v, %q", name, s, reason)
		}
	}
}

func TestForeignVolumesAreLeftToTheirProvisioner(t *testing.T) {
	claim := newClaimOn("n")
	v, err := NewVolume(claim, newClass(), newNode(map[string]string{"kubernetes.io/hostname": "n"}))
	if err != nil {
		t.Fatal(err)
	}
	claim.Spec.VolumeName, claim.Spec.Resources.Requests = v.Name, storageSize("2Gi")
	claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: storageSize("1Gi")}
	if NeedsForeignExpansion(claim, v) {
		t.Error("a volume of ours")
	}
	v.Annotations["pv.kubernetes.io/provisioned-by"] = "example.com/other"
	if !NeedsForeignExpansion(claim, v) {
		t.Error("a volume of another's")
	}
	claim.Status.Capacity = storageSize("2Gi")
	if NeedsForeignExpansion(claim, v) {
		t.Error("a claim that has grown")
	}
}
