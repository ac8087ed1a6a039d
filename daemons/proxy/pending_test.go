package proxy

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestASliceChangeQueuesItsService(t *testing.T) {
	slice := func(labels map[string]string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s", Labels: labels}}
	}
	for name, c := range map[string]struct {
		labels map[string]string
		want   string
	}{
		"of a service":        {map[string]string{discoveryv1.LabelServiceName: "web"}, "shop/web"},
		"of a policy's peers": {map[string]string{"network.clusterctl.local/peers": "peers-x"}, ""},
		"of nobody":           {nil, ""},
	} {
		changed := newPendingServices()
		eventHandler(func(o any) { changed.add(serviceOf(o)) }).OnAdd(slice(c.labels), false)
		woken := changed.takeAll()
		if len(woken) > 1 || c.want != "" && !woken[c.want] || c.want == "" && len(woken)+len(changed.wake) > 0 {
			t.Errorf("%s: woken are %v, want %q", name, woken, c.want)
		}
	}
}

// A service that could not be recomputed waits for the retry, and does not wake the loop at once.
func TestFailedServicesAreRetriedLater(t *testing.T) {
	changed := newPendingServices()
	changed.retry("shop/web")
	if len(changed.wake) != 0 {
		t.Error("the loop was woken")
	}
	if names := changed.takeAll(); !names["shop/web"] {
		t.Errorf("the service is lost: %v", names)
	}
}
