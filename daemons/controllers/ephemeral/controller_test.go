package ephemeral

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

func TestClaimsForEphemeralVolumes(t *testing.T) {
	now := metav1.Now()
	pod := podWithEphemeralVolume
	ended, leaving := pod(), pod()
	ended.Status.Phase, leaving.DeletionTimestamp = corev1.PodSucceeded, &now
	former := Claims(pod())[0]
	former.OwnerReferences[0].UID = "old"
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		got     *corev1.PersistentVolumeClaim
		made    bool
		message string
	}{
		"a new pod":   {pod(), nil, true, ""},
		"made before": {pod(), Claims(pod())[0], true, ""},
		"a former pod's": {pod(), former, false, "Warning FailedBinding ephemeral volume v: PVC d/p-v was not " +
			"created for pod d/p (pod is not owner)"},
		"without an owner": {pod(),
			&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p-v"}}, false,
			"pod is not owner"},
		"a pod that ended": {ended, nil, false, ""},
		"a pod that goes":  {leaving, nil, false, ""},
	} {
		client, events := fake.NewClientset(), record.NewFakeRecorder(10)
		factory := informers.New(client)
		e := New(loop.Context{Client: client, Informers: factory, Events: events,
			Log: slog.New(slog.DiscardHandler)}).(*controller)
		if err := informers.Pods(factory).Informer().GetIndexer().Add(c.pod); err != nil {
			t.Fatal(err)
		}
		if c.got != nil {
			if err := informers.PersistentVolumeClaims(factory).Informer().GetIndexer().Add(c.got); err != nil {
				t.Fatal(err)
			}
			if err := client.Tracker().Add(c.got); err != nil {
				t.Fatal(err)
			}
		}
		err := e.sync(context.Background(), "d/p")
		if (err != nil) != (c.message != "") {
			t.Errorf("%s: %v", name, err)
		}
		got, err := client.CoreV1().PersistentVolumeClaims("d").Get(context.Background(), "p-v", metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		if mine := err == nil && metav1.IsControlledBy(got, c.pod); mine != c.made {
			t.Errorf("%s: the claim is %+v", name, got)
		} else if mine && (got.Labels["a"] != "b" || got.Annotations["x"] != "y" || len(got.Spec.AccessModes) != 1) {
			t.Errorf("%s: the template is lost: %+v", name, got)
		}
		message := ""
		select {
		case message = <-events.Events:
		default:
		}
		if (message == "") != (c.message == "") || !strings.Contains(message, c.message) {
			t.Errorf("%s: said is %q", name, message)
		}
	}
}

// podWithEphemeralVolume returns a pod with an ephemeral volume and an ordinary one.
func podWithEphemeralVolume() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p", UID: "u"},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{
			{
				Name: "none",
			}, {Name: "v",
				VolumeSource: corev1.VolumeSource{
					Ephemeral: &corev1.EphemeralVolumeSource{
						VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
							ObjectMeta: metav1.ObjectMeta{
								Labels:      map[string]string{"a": "b"},
								Annotations: map[string]string{"x": "y"},
							},
							Spec: corev1.PersistentVolumeClaimSpec{
								AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteOnce"},
							}},
					},
				}}}},
	}
}
