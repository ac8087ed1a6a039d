package kubelet

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"clusterctl/daemons/kubelet/sleep"
	"clusterctl/daemons/kubelet/volume"
	"clusterctl/kube/kubernetes"
)

// objectCache reads the ConfigMaps, secrets and trust bundles that this node's pods refer to. A requested object is
// watched by name, which is all that a node is authorized to do. The watch continues as long as a pod uses the object.
type objectCache struct {
	client       kubernetes.Interface
	log          *slog.Logger
	node         string // name of this node
	notify       func(types.UID)
	certificates *podCertificates

	mu     sync.Mutex
	wg     sync.WaitGroup
	cached map[objectRef]*cachedObject
	tokens map[tokenKey]cachedToken
}

type objectRef struct{ kind, namespace, name string }

// These are the kinds of objects that are read.
const (
	configMaps    = "configmaps"
	secrets       = "secrets"
	trustBundles  = "clustertrustbundles"
	signerBundles = "clustertrustbundles of signer" // all bundles of a signer

	certificateRequests = "podcertificaterequests"
)

// versioned is an object or a list that has a resource version.
type versioned interface {
	runtime.Object
	GetResourceVersion() string
}

type cachedObject struct {
	cancel context.CancelFunc
	first  chan struct{} // closed after the first read
	once   sync.Once
	value  versioned
	err    error
	users  map[types.UID]bool
}

type tokenKey struct {
	pod      types.UID
	audience string
	lifetime time.Duration
}

type cachedToken struct {
	value   string
	renewAt time.Time
}

func newObjectCache(client kubernetes.Interface, log *slog.Logger, node string, registered func() *corev1.Node,
	changed func(types.UID)) *objectCache {
	o := &objectCache{client: client, log: log, node: node, notify: changed, cached: map[objectRef]*cachedObject{},
		tokens: map[tokenKey]cachedToken{}}
	o.certificates = &podCertificates{objects: o, node: registered, now: time.Now,
		certificates: map[sourceKey]*podCertificate{}}
	return o
}

// run waits until ctx ends. Then it stops all watches and waits for them.
func (o *objectCache) run(ctx context.Context) {
	<-ctx.Done()
	o.mu.Lock()
	for _, x := range o.cached {
		x.cancel()
	}
	o.mu.Unlock()
	o.wg.Wait()
}

// podKey is the context key of the pod for which an object is read.
type podKey struct{}

func withPod(ctx context.Context, uid types.UID) context.Context {
	return context.WithValue(ctx, podKey{}, uid)
}

// ConfigMap returns the current ConfigMap.
func (o *objectCache) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	v, err := o.get(ctx, objectRef{configMaps, namespace, name})
	if err != nil {
		return nil, err
	}
	return v.(*corev1.ConfigMap), nil
}

// Secret returns the current secret.
func (o *objectCache) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	v, err := o.get(ctx, objectRef{secrets, namespace, name})
	if err != nil {
		return nil, err
	}
	return v.(*corev1.Secret), nil
}

// TrustBundles returns the bundle with the given name. Without a name, it returns all bundles of the signer.
func (o *objectCache) TrustBundles(ctx context.Context, name,
	signer string) ([]certificatesv1.ClusterTrustBundle, error) {
	r := objectRef{kind: trustBundles, name: name}
	if name == "" {
		r = objectRef{kind: signerBundles, name: signer}
	}
	v, err := o.get(ctx, r)
	if err != nil {
		return nil, err
	}
	if list, ok := v.(*certificatesv1.ClusterTrustBundleList); ok {
		return list.Items, nil
	}
	return []certificatesv1.ClusterTrustBundle{*v.(*certificatesv1.ClusterTrustBundle)}, nil
}

// PodCertificate returns the key and certificate of a source of a projected volume, and when to call it again.
func (o *objectCache) PodCertificate(ctx context.Context, p *corev1.Pod, name string, index int,
	source *corev1.PodCertificateProjection) (volume.KeyPair, time.Time, error) {
	return o.certificates.Get(ctx, p, name, index, source)
}

// certificateRequest returns the current state of a request for a pod's certificate.
func (o *objectCache) certificateRequest(ctx context.Context,
	r objectRef) (*certificatesv1.PodCertificateRequest, error) {
	v, err := o.get(ctx, r)
	if err != nil {
		return nil, err
	}
	return v.(*certificatesv1.PodCertificateRequest), nil
}

func (o *objectCache) get(ctx context.Context, r objectRef) (versioned, error) {
	uid, _ := ctx.Value(podKey{}).(types.UID)
	if uid == "" {
		return o.read(ctx, r)
	}
	o.mu.Lock()
	x := o.cached[r]
	if x == nil {
		wctx, cancel := context.WithCancel(context.Background())
		x = &cachedObject{cancel: cancel, first: make(chan struct{}), users: map[types.UID]bool{}}
		o.cached[r] = x
		o.wg.Go(func() { o.keepCurrent(wctx, r, x) })
	}
	x.users[uid] = true
	o.mu.Unlock()
	select {
	case <-x.first:
	case <-ctx.Done():
		return nil, fmt.Errorf("read %s %s/%s: %w", r.kind, r.namespace, r.name, ctx.Err())
	}
	o.mu.Lock()
	value, err := x.value, x.err
	o.mu.Unlock()
	if err != nil {
		// The object may have been created after the cached error. Read the API, which is authoritative.
		return o.read(ctx, r)
	}
	return value, nil
}

func (o *objectCache) read(ctx context.Context, r objectRef) (versioned, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	switch r.kind {
	case secrets:
		return o.client.CoreV1().Secrets(r.namespace).Get(ctx, r.name, metav1.GetOptions{})
	case trustBundles:
		return o.client.CertificatesV1().ClusterTrustBundles().Get(ctx, r.name, metav1.GetOptions{})
	case signerBundles:
		return o.client.CertificatesV1().ClusterTrustBundles().List(ctx,
			metav1.ListOptions{FieldSelector: r.selector(o.node)})
	case certificateRequests:
		return o.client.CertificatesV1().PodCertificateRequests(r.namespace).Get(ctx, r.name, metav1.GetOptions{})
	}
	return o.client.CoreV1().ConfigMaps(r.namespace).Get(ctx, r.name, metav1.GetOptions{})
}

// selector returns the field selector for the reference, within what the node is authorized to watch.
func (r objectRef) selector(node string) string {
	switch r.kind {
	case signerBundles:
		return fields.OneTermEqualSelector("spec.signerName", r.name).String()
	case certificateRequests:
		return fields.SelectorFromSet(fields.Set{"metadata.name": r.name, "spec.nodeName": node}).String()
	}
	return fields.OneTermEqualSelector("metadata.name", r.name).String()
}

func (o *objectCache) watch(ctx context.Context, r objectRef, version string) (watch.Interface, error) {
	options := metav1.ListOptions{FieldSelector: r.selector(o.node), ResourceVersion: version,
		AllowWatchBookmarks: true}
	switch r.kind {
	case secrets:
		return o.client.CoreV1().Secrets(r.namespace).Watch(ctx, options)
	case trustBundles, signerBundles:
		return o.client.CertificatesV1().ClusterTrustBundles().Watch(ctx, options)
	case certificateRequests:
		return o.client.CertificatesV1().PodCertificateRequests(r.namespace).Watch(ctx, options)
	}
	return o.client.CoreV1().ConfigMaps(r.namespace).Watch(ctx, options)
}

// keepCurrent keeps the cached object x up to date until ctx ends.
func (o *objectCache) keepCurrent(ctx context.Context, r objectRef, x *cachedObject) {
	delay := time.Second
	for ctx.Err() == nil {
		value, err := o.read(ctx, r)
		o.store(x, value, err)
		x.once.Do(func() { close(x.first) })
		version := ""
		if err == nil {
			version = value.GetResourceVersion()
		}
		if err == nil || apierrors.IsNotFound(err) {
			w, werr := o.watch(ctx, r, version)
			if werr == nil {
				delay = time.Second
				o.readEvents(ctx, r, x, w)
			}
		}
		if !sleep.For(ctx, delay) {
			return
		}
		delay = min(2*delay, 30*time.Second)
	}
}

func (o *objectCache) readEvents(ctx context.Context, r objectRef, x *cachedObject, w watch.Interface) {
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-w.ResultChan():
			if !ok {
				return
			}
			if r.kind == signerBundles &&
				(e.Type == watch.Added || e.Type == watch.Modified || e.Type == watch.Deleted) {
				value, err := o.read(ctx, r) // one bundle changed: read the whole list again
				if err != nil {
					return
				}
				o.store(x, value, nil)
				continue
			}
			switch e.Type {
			case watch.Added, watch.Modified:
				if value, ok := e.Object.(versioned); ok {
					o.store(x, value, nil)
				}
			case watch.Deleted:
				o.store(x, nil, apierrors.NewNotFound(corev1.Resource("object"), "deleted"))
			case watch.Error:
				return
			}
		}
	}
}

// store stores the result of a read. It wakes the pods that use the object if it has changed.
func (o *objectCache) store(x *cachedObject, value versioned, err error) {
	o.mu.Lock()
	changed := false
	if err == nil {
		changed = x.value == nil || x.value.GetResourceVersion() != value.GetResourceVersion()
		x.value, x.err = value, nil
	} else if x.value == nil || apierrors.IsNotFound(err) {
		x.value, x.err = nil, err
	}
	var users []types.UID
	if changed {
		for uid := range x.users {
			users = append(users, uid)
		}
	}
	o.mu.Unlock()
	select {
	case <-x.first:
		for _, uid := range users {
			o.notify(uid)
		}
	default: // at the first read, the caller waits for the value itself
	}
}

// removeUser removes one pod's use of an object. It stops the watch after the last use.
func (o *objectCache) removeUser(uid types.UID, r objectRef) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if x := o.cached[r]; x != nil {
		if delete(x.users, uid); len(x.users) == 0 {
			x.cancel()
			delete(o.cached, r)
		}
	}
}

// removePod removes all uses by the given pod, with its tokens and certificates.
func (o *objectCache) removePod(uid types.UID) {
	o.certificates.removePod(uid)
	o.mu.Lock()
	defer o.mu.Unlock()
	for r, x := range o.cached {
		if delete(x.users, uid); len(x.users) == 0 {
			x.cancel()
			delete(o.cached, r)
		}
	}
	for k := range o.tokens {
		if k.pod == uid {
			delete(o.tokens, k)
		}
	}
}

// Token returns a token of the pod's service account that is bound to the pod, and when to call it again. That is after
// four fifths of the token's lifetime, at most a day.
func (o *objectCache) Token(
	ctx context.Context,
	p *corev1.Pod,
	audience string,
	lifetime time.Duration,
) (string, time.Time, error) {
	k := tokenKey{p.UID, audience, lifetime}
	o.mu.Lock()
	current, ok := o.tokens[k]
	o.mu.Unlock()
	if ok && time.Now().Before(current.renewAt) {
		return current.value, current.renewAt, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	seconds := int64(lifetime / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1",
			Kind:       "Pod",
			Name:       p.Name,
			UID:        p.UID,
		},
	}}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	account := p.Spec.ServiceAccountName
	if account == "" {
		account = "default"
	}
	requestedAt := time.Now()
	answer, err := o.client.CoreV1().
		ServiceAccounts(p.Namespace).
		CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", time.Time{}, fmt.Errorf("request a token of service account %s/%s: %w", p.Namespace, account, err)
	}
	left := answer.Status.ExpirationTimestamp.Sub(requestedAt)
	got := cachedToken{answer.Status.Token, requestedAt.Add(min(left*4/5, 24*time.Hour))}
	o.mu.Lock()
	o.tokens[k] = got
	o.mu.Unlock()
	return got.value, got.renewAt, nil
}

// Claim reads the current claim from the API.
func (o *objectCache) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return o.client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
}

// Volume reads the current persistent volume from the API.
func (o *objectCache) Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return o.client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
}
