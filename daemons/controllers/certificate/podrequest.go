package certificate

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

// podRequestLifetime is how long a PodCertificateRequest is retained, answered or not, as upstream does. The kubelet
// sends a new one when it needs one.
const podRequestLifetime = 15 * time.Minute

// podRequestCleaner deletes PodCertificateRequests that are older than podRequestLifetime.
type podRequestCleaner struct {
	loop.Context
	loop.Loop
	requests certificateslisters.PodCertificateRequestLister
}

// NewPodRequestCleaner returns the controller that deletes old PodCertificateRequests.
func NewPodRequestCleaner(c loop.Context) loop.Controller {
	requests := informers.PodCertificateRequests(c.Informers)
	p := &podRequestCleaner{Context: c, requests: requests.Lister()}
	p.Loop = loop.Loop{Name: "podcertificaterequest-cleaner", Context: c, Workers: 1, Sync: p.sync,
		Synced: []cache.InformerSynced{requests.Informer().HasSynced}}
	c.OnChange(requests.Informer(), func(_, obj any) {
		if obj != nil {
			p.Add(obj)
		}
	})
	return p
}

func (p *podRequestCleaner) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	request, err := p.requests.PodCertificateRequests(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if left := request.CreationTimestamp.Add(podRequestLifetime).Sub(p.Now()); left > 0 {
		p.AddAfter(key, left)
		return nil
	}
	err = p.Client.CertificatesV1().PodCertificateRequests(namespace).Delete(ctx, name, loop.IfUnchanged(request))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the old PodCertificateRequest %s: %w", key, err)
	}
	return nil
}
