package provisioner

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"clusterctl/daemons/api/directory"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

func newVolumeWith(
	phase corev1.PersistentVolumePhase,
	policy corev1.PersistentVolumeReclaimPolicy,
	change ...func(*corev1.PersistentVolume),
) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-u", UID: "v", Finalizers: []string{directory.Finalizer},
			Annotations: map[string]string{
				"pv.kubernetes.io/provisioned-by": directory.Provisioner,
				directory.NodeAnnotation:          "n",
			}},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: policy,
			ClaimRef:                      &corev1.ObjectReference{Namespace: "d", Name: "c", UID: "u"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				Local: &corev1.LocalVolumeSource{Path: directory.Path("pvc-u")},
			},
		},
		Status: corev1.PersistentVolumeStatus{Phase: phase}}
	for _, f := range change {
		f(v)
	}
	return v
}

func markDeleted(v *corev1.PersistentVolume) { now := metav1.Now(); v.DeletionTimestamp = &now }

func TestVolumeActions(t *testing.T) {
	free := func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil }
	for name, c := range map[string]struct {
		v    *corev1.PersistentVolume
		want Action
	}{
		"bound":                     {newVolumeWith("Bound", "Delete"), ActionNone},
		"bound and going":           {newVolumeWith("Bound", "Delete", markDeleted), ActionNone},
		"released":                  {newVolumeWith("Released", "Delete"), ActionRemove},
		"released and going":        {newVolumeWith("Released", "Delete", markDeleted), ActionRemove},
		"failed before":             {newVolumeWith("Failed", "Delete"), ActionRemove},
		"released and kept":         {newVolumeWith("Released", "Retain"), ActionNone},
		"kept, and deleted by hand": {newVolumeWith("Released", "Retain", markDeleted), ActionReleaseOnly},
		"free":                      {newVolumeWith("Available", "Delete", free), ActionNone},
		"free, and deleted by hand": {newVolumeWith("Available", "Delete", free, markDeleted), ActionRemove},
		"not yet looked at":         {newVolumeWith("Pending", "Delete"), ActionNone},
		"another's": {newVolumeWith("Released", "Delete",
			func(v *corev1.PersistentVolume) { v.Annotations = nil }), ActionNone},
		"done": {newVolumeWith("Released", "Delete", markDeleted,
			func(v *corev1.PersistentVolume) { v.Finalizers = nil }), ActionNone},
	} {
		if got := DecideVolume(c.v); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A volume is removed only if the API server confirms that it is unused and that its node exists, and after the kubelet
// has removed the directory.
//
//style:long a table of volumes, with what the API server and the kubelet answer
func TestVolumesAreRemovedOnlyAfterConfirmation(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	of := func(uid, volume string) *corev1.PersistentVolumeClaim {
		c := newClaimOn("n")
		c.UID, c.Spec.VolumeName = "u", volume
		if uid != "u" {
			c.UID = "other"
		}
		return c
	}
	unavailable := apierrors.NewInternalError(errors.New("no"))
	missing := &apierrors.StatusError{
		ErrStatus: metav1.Status{
			Status:  metav1.StatusFailure,
			Message: "its directory is not there: take the annotations off",
			Details: &metav1.StatusDetails{
				Kind:   directory.Resource,
				Name:   "pvc-u",
				Causes: []metav1.StatusCause{{Type: directory.MissingCause}},
			},
		},
	}
	page := apierrors.NewGenericServerResponse(404, "get", corev1.Resource("persistentvolumeclaims"), "c",
		"404 page not found", 0, true)
	for name, c := range map[string]struct {
		v         *corev1.PersistentVolume
		objects   []runtime.Object
		deny      string // a resource that cannot be read
		how       error
		kubelet   error
		requested bool
		removed   bool
		failed    string
	}{
		"all is well": {newVolumeWith("Released", "Delete"), []runtime.Object{node}, "", nil, nil, true, true, ""},
		"the claim is another": {newVolumeWith("Released", "Delete"), []runtime.Object{node, of("other", "")}, "", nil,
			nil,
			true, true, ""},
		"the claim is elsewhere": {newVolumeWith("Released", "Delete"), []runtime.Object{node, of("u", "pv-2")}, "",
			nil, nil,
			true, true, ""},
		"the claim is there": {newVolumeWith("Released", "Delete"), []runtime.Object{node, of("u", "pvc-u")}, "", nil,
			nil,
			false, false, ""},
		"the claim is to be bound": {newVolumeWith("Released", "Delete"), []runtime.Object{node, of("u", "")}, "", nil,
			nil,
			false, false, ""},
		"the claim is not read": {newVolumeWith("Released", "Delete"), []runtime.Object{node}, "persistentvolumeclaims",
			unavailable, nil, false, false, ""},
		"some page is not found": {newVolumeWith("Released", "Delete"), []runtime.Object{node},
			"persistentvolumeclaims", page,
			nil, false, false, ""},
		"the kubelet says no": {newVolumeWith("Released", "Delete"), []runtime.Object{node}, "", nil,
			errors.New("in use"),
			true, false, ""},
		"the kubelet misses it": {newVolumeWith("Released", "Delete"), []runtime.Object{node}, "", nil, missing, true,
			false,
			"node n: its directory is not there: take the annotations off"},
		"it missed it before": {newVolumeWith("Failed", "Delete"), []runtime.Object{node}, "", nil, nil, true, true,
			""},
		"the node is gone":     {newVolumeWith("Released", "Delete"), nil, "", nil, nil, false, false, `node "n", which has the data`},
		"the node is not read": {newVolumeWith("Released", "Delete"), nil, "nodes", unavailable, nil, false, false, ""},
		"it lies elsewhere": {newVolumeWith("Released", "Delete",
			func(v *corev1.PersistentVolume) { v.Spec.Local.Path = "/etc" }), []runtime.Object{node}, "", nil, nil,
			false, false, "remove it by hand"},
		"it is bound again": {newVolumeWith("Bound", "Delete"), []runtime.Object{node}, "", nil, nil, false, false, ""},
	} {
		client := fake.NewClientset(append(c.objects, c.v)...)
		if c.deny != "" {
			client.PrependReactor("get", c.deny,
				func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, c.how })
		}
		requested := false
		p := &controller{
			Context: loop.Context{
				Client: client,
				Events: record.NewFakeRecorder(10),
				Log:    slog.New(slog.DiscardHandler),
			},
			remove: func(_ context.Context, node string, v *corev1.PersistentVolume) error {
				requested = node == "n" && v.Name == "pvc-u"
				return c.kubelet
			},
		}
		err := p.syncVolume(context.Background(), "pvc-u")
		v, goneErr := client.CoreV1().PersistentVolumes().Get(context.Background(), "pvc-u", metav1.GetOptions{})
		if requested != c.requested || apierrors.IsNotFound(goneErr) != c.removed {
			t.Errorf("%s: kubelet asked %v, removed %v, %v", name, requested, goneErr, err)
		}
		if goneErr == nil && (v.Status.Phase == corev1.VolumeFailed) != (c.failed != "") ||
			goneErr == nil && !strings.Contains(v.Status.Message, c.failed) {
			t.Errorf("%s: it is %+v", name, v.Status)
		}
	}
}

func TestKubeletAnswersAreInterpreted(t *testing.T) {
	failed := errors.New("HTTP status 500")
	for text, ok := range map[string]bool{
		`{"kind":"Status","status":"Success","details":{"kind":"localVolumes","name":"pvc-u"}}`: true,
		`{"kind":"Status","status":"Success","details":{"kind":"localVolumes","name":"pvc-v"}}`: false,
		`{"kind":"Status","status":"Success"}`:                                                  false,
		`{"kind":"Status","status":"Failure","details":{"kind":"localVolumes","name":"pvc-u"}}`: false,
		`<html>welcome</html>`: false, ``: false,
	} {
		if err := kubeletResult([]byte(text), nil, "pvc-u"); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
	own := `{"kind":"Status","status":"Failure","message":"not here","details":{"kind":"localVolumes","name":"pvc-u","causes":[{"reason":"DirectoryMissing"}]}}`
	for text, want := range map[string]bool{own: true, strings.Replace(own, "pvc-u", "pvc-v", 1): false,
		strings.Replace(own, "localVolumes", "nodes", 1): false, "<html>": false} {
		if err := kubeletResult([]byte(text), failed, "pvc-u"); err == nil ||
			apierrors.HasStatusCause(err, directory.MissingCause) != want ||
			want && err.Error() != "not here" {
			t.Errorf("%s: %v", text, err)
		}
	}
}
