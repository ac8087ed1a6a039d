package kubelet

import (
	"context"
	"log/slog"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	k8stesting "k8s.io/client-go/testing"

	"clusterctl/kube/kubernetes/fake"
)

// Pods are notified when a bundle that they use changes, and when their signer has another bundle.
// Proves S30.
func TestTrustBundleChangesReachTheirPods(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	bundle := func(name, signer, version string) *certificatesv1.ClusterTrustBundle {
		return &certificatesv1.ClusterTrustBundle{
			ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version},
			Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signer},
		}
	}
	list := &certificatesv1.ClusterTrustBundleList{
		ListMeta: metav1.ListMeta{ResourceVersion: "1"},
		Items:    []certificatesv1.ClusterTrustBundle{*bundle("example.com:s:1", "example.com/s", "1")},
	}
	named, signers, watched := watch.NewFake(), watch.NewFake(), make(chan string, 2)
	client := fake.NewClientset()
	client.PrependReactor("get", "clustertrustbundles", func(a k8stesting.Action) (bool, runtime.Object, error) {
		if name := a.(k8stesting.GetAction).GetName(); name != "plain" {
			return true, nil, apierrors.NewNotFound(certificatesv1.Resource("clustertrustbundles"), name)
		}
		return true, bundle("plain", "", "1"), nil
	})
	lists := make(chan *certificatesv1.ClusterTrustBundleList, 2)
	lists <- list
	client.PrependReactor("list", "clustertrustbundles", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, <-lists, nil
	})
	client.PrependWatchReactor("clustertrustbundles", func(a k8stesting.Action) (bool, watch.Interface, error) {
		selector := a.(k8stesting.WatchAction).GetWatchRestrictions().Fields
		watched <- selector.String()
		if selector.Matches(fields.Set{"metadata.name": "plain"}) {
			return true, named, nil
		}
		return true, signers, nil
	})
	notified := make(chan types.UID, 4)
	o := newObjectCache(client, slog.New(slog.DiscardHandler), "n1", nil, func(uid types.UID) { notified <- uid })
	done := make(chan struct{})
	go func() { defer close(done); o.run(ctx) }()
	defer func() { cancel(); <-done }()

	one, err := o.TrustBundles(withPod(ctx, "a"), "plain", "")
	if err != nil || len(one) != 1 || one[0].Name != "plain" {
		t.Fatalf("by name: %v, %v", one, err)
	}
	if at := receive(t, watched); at != "metadata.name=plain" {
		t.Errorf("watched is %s", at)
	}
	all, err := o.TrustBundles(withPod(ctx, "b"), "", "example.com/s")
	if err != nil || len(all) != 1 {
		t.Fatalf("by signer: %v, %v", all, err)
	}
	if at := receive(t, watched); at != "spec.signerName=example.com/s" {
		t.Errorf("watched is %s", at)
	}

	named.Modify(bundle("plain", "", "2"))
	if uid := receive(t, notified); uid != "a" {
		t.Errorf("the pod that is reported is %s", uid)
	}
	next := list.DeepCopy()
	next.ResourceVersion, next.Items = "3", append(next.Items, *bundle("example.com:s:2", "example.com/s", "3"))
	lists <- next
	signers.Add(&next.Items[1])
	if uid := receive(t, notified); uid != "b" {
		t.Errorf("the pod that is reported is %s", uid)
	}
	if all, err = o.TrustBundles(withPod(ctx, "b"), "", "example.com/s"); err != nil || len(all) != 2 {
		t.Errorf("by signer: %v, %v", all, err)
	}
	if _, err := o.TrustBundles(ctx, "none", ""); !apierrors.IsNotFound(err) {
		t.Errorf("what is not there: %v", err)
	}
}

func receive[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(20 * time.Second):
		t.Fatal("timed out")
	}
	return v
}
