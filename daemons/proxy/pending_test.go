package proxy

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/run/reconcile"
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
		changes := reconcile.NewSignal()
		d := daemon{pending: reconcile.NewKeys(changes)}
		eventHandler(d.queueService).OnAdd(slice(c.labels), false)
		woken := d.pending.Take()
		if len(woken) > 1 || c.want != "" && !woken[c.want] || c.want == "" && len(woken)+len(changes) > 0 {
			t.Errorf("%s: woken are %v, want %q", name, woken, c.want)
		}
	}
}
