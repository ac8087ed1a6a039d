package namespace

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/discovery"
	"clusterctl/kube/kubernetes/fake"
)

func TestTerminatingNamespacesReportRemainingContent(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	good := []string{
		"NamespaceDeletionDiscoveryFailure False ResourcesDiscovered: All resources successfully discovered",
		"NamespaceDeletionGroupVersionParsingFailure False ParsedGroupVersions: All legacy kube types successfully " +
			"parsed",
		"NamespaceDeletionContentFailure False ContentDeleted: All content successfully deleted, may be waiting on " +
			"finalization",
		"NamespaceContentRemaining False ContentRemoved: All content successfully removed",
		"NamespaceFinalizersRemaining False ContentHasNoFinalizers: All content-preserving finalizers finished",
	}
	with := func(i int, text string) []string {
		out := slices.Clone(good)
		out[i] = text
		return out
	}
	unavailable := &discovery.ErrGroupDiscoveryFailed{
		Groups: map[schema.GroupVersion]error{{Group: "metrics.k8s.io", Version: "v1beta1"}: errors.New("down")},
	}
	for name, c := range map[string]struct {
		left remainder
		want []string
	}{
		"nothing": {remainder{}, good},
		"a group that is not served at present": {remainder{discovery: unavailable},
			with(0, "NamespaceDeletionDiscoveryFailure True DiscoveryFailed: "+
				"Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: "+
				"metrics.k8s.io/v1beta1: down")},
		"what cannot be deleted": {remainder{failures: []string{"a: no", "b: no"}},
			with(2, "NamespaceDeletionContentFailure True ContentDeletionFailed: "+
				"Failed to delete all resource types, 2 remaining: a: no, b: no")},
		"what has not gone yet": {remainder{objects: map[string]int{"pods.": 2, "ingresses.networking.k8s.io": 1}},
			with(3, "NamespaceContentRemaining True SomeResourcesRemain: "+
				"Some resources are remaining: ingresses.networking.k8s.io has 1 resource instances, pods. has 2 "+
				"resource instances")},
		"what waits for somebody": {remainder{finalizers: map[string]int{"example.com/wait": 2}},
			with(4, "NamespaceFinalizersRemaining True SomeFinalizersRemain: "+
				"Some content in the namespace has finalizers remaining: example.com/wait in 2 resource instances")},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}}
			client, clock := fake.NewClientset(namespace), clocktesting.NewFakeClock(start)
			n := &controller{Context: loop.Context{Client: client, Log: slog.New(slog.DiscardHandler), Clock: clock}}
			for range 2 { // unchanged conditions retain their transition time
				if err := n.writeStatus(t.Context(), namespace, c.left); err != nil {
					t.Fatal(err)
				}
				var err error
				if namespace, err = client.CoreV1().Namespaces().Get(t.Context(), "n",
					metav1.GetOptions{}); err != nil {
					t.Fatal(err)
				}
				clock.Step(time.Minute)
			}
			var got []string
			for _, o := range namespace.Status.Conditions {
				got = append(got, fmt.Sprintf("%s %s %s: %s", o.Type, o.Status, o.Reason, o.Message))
				if !o.LastTransitionTime.Equal(&metav1.Time{Time: start}) {
					t.Errorf("%s has changed at %s", o.Type, o.LastTransitionTime)
				}
			}
			if !slices.Equal(got, c.want) || namespace.Status.Phase != corev1.NamespaceTerminating {
				t.Errorf("in phase %s it says %q, want %q", namespace.Status.Phase, got, c.want)
			}
		})
	}
}
