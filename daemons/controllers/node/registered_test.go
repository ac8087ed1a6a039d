package node

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

// Events report since when a node is monitored, and when one has been deleted.
func TestNodeRegistrationAndDeletionAreReported(t *testing.T) {
	client, events := fake.NewClientset(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}},
	), record.NewFakeRecorder(10)
	factory := informers.New(client)
	New(loop.Context{Client: client, Informers: factory, Log: slog.New(slog.DiscardHandler), Events: events})
	factory.StartWithContext(t.Context())
	readReason := func() string {
		t.Helper()
		select {
		case e := <-events.Events:
			return e
		case <-time.After(time.Minute):
			t.Fatal("there is no event")
		}
		return ""
	}
	var got []string
	got = append(got, readReason())
	node, err := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Labels, node.ResourceVersion = map[string]string{"a": "b"}, "2" // an update without an event
	if _, err := client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Nodes().Delete(t.Context(), "n", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	got = append(got, readReason())
	if want := []string{"Normal RegisteredNode Node n event: Registered Node n in " +
		"Controller", "Normal RemovingNode Node n event: Removing Node n from Controller"}; !slices.Equal(got, want) {
		t.Errorf("the event is %q", got)
	}
}
