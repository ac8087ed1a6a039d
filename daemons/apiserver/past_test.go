package apiserver_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"clusterctl/tests/tools/amount"
)

// A paged list has the state of its beginning on all pages, until the store compacts that revision, whatever changes
// meanwhile.
// Proves S12.
func TestPagesContinueUntilCompaction(t *testing.T) {
	kinds := slices.Sorted(maps.Keys(stores))
	for _, name := range kinds[:amount.Scaled(len(kinds), 1)] {
		t.Run(name, func(t *testing.T) {
			s := stores[name](t)
			cfg := startConfig(t, s, nil)
			quick := rest.CopyConfig(cfg)
			quick.ContentType = "application/vnd.kubernetes.protobuf" // reading 50 MB of JSON takes half a minute
			client := kubernetes.NewForConfigOrDie(quick).CoreV1().ConfigMaps("default")
			ctx := context.Background()
			for _, name := range []string{"a", "b", "c", "d"} {
				if _, err := client.Create(ctx,
					&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name,
						Labels: map[string]string{"then": "yes"}}}, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			first, err := client.List(ctx, metav1.ListOptions{Limit: 1})
			if err != nil || first.Continue == "" || *first.RemainingItemCount != 3 {
				t.Fatalf("%+v, %v", first, err)
			}
			selected, err := client.List(ctx, metav1.ListOptions{Limit: 2, LabelSelector: "then=yes"})
			if err != nil {
				t.Fatal(err)
			}
			exceedEventLog(ctx, t, client)
			names := func(l *corev1.ConfigMapList) (text string) {
				for _, item := range l.Items {
					text += item.Name
				}
				return text
			}
			next, err := client.List(ctx, metav1.ListOptions{Limit: 2, Continue: first.Continue})
			if err != nil || names(next) != "bc" || next.ResourceVersion != first.ResourceVersion ||
				next.RemainingItemCount == nil ||
				*next.RemainingItemCount != 1 {
				t.Fatalf("%s: %+v, %v", names(next), next.ListMeta, err)
			}
			rest, err := client.List(ctx, metav1.ListOptions{Continue: selected.Continue, LabelSelector: "then=yes"})
			if err != nil || names(rest) != "cd" || rest.Continue != "" {
				t.Errorf("selected: %s, %v", names(rest), err)
			}
			exact, err := client.List(
				ctx,
				metav1.ListOptions{
					ResourceVersion:      first.ResourceVersion,
					ResourceVersionMatch: metav1.ResourceVersionMatchExact,
				},
			)
			if err != nil || names(exact) != "abcd" && !strings.HasSuffix(names(exact), "abcd") {
				t.Errorf("exactly: %s, %v", names(exact), err)
			}
			// A watch cannot start from there.
			code, text := sendRequest(t, cfg, "GET",
				"/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1&resourceVersion="+first.ResourceVersion,
				"")
			if code != 410 || !strings.Contains(text, "too old resource version") {
				t.Errorf("%d %s", code, text)
			}
			now, err := s.Revision(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Compact(ctx, now); err != nil {
				t.Fatal(err)
			}
			_, err = client.List(ctx, metav1.ListOptions{Limit: 1, Continue: next.Continue})
			if !apierrors.IsResourceExpired(err) {
				t.Fatalf("after the compaction: %v", err)
			}
			again := err.(apierrors.APIStatus).Status().Continue
			if left, err := client.List(ctx, metav1.ListOptions{Continue: again}); err != nil ||
				!strings.HasPrefix(names(left), "dlarge") && names(left) != "dkube-root-ca.crtlarge" {
				t.Errorf("what is left now: %s, %v", names(left), err)
			}
		})
	}
}

// exceedEventLog deletes an object and writes more than the event log in memory may hold.
func exceedEventLog(ctx context.Context, t *testing.T, client corev1client.ConfigMapInterface) {
	if err := client.Delete(ctx, "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	large := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "large"}, Data: map[string]string{}}
	for i := range 60 {
		var err error
		large.Data["text"] = strings.Repeat(fmt.Sprint(i%10), 900<<10)
		write := client.Update
		if i == 0 {
			_, err = client.Create(ctx, large, metav1.CreateOptions{})
		} else {
			_, err = write(ctx, large, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
