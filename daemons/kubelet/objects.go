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

	"clusterctl/daemons/kubelet/volume"
	"clusterctl/kube/kubernetes"
)

// objects reads the ConfigMaps, secrets and trust bundles that this node's pods refer to. A requested object is watched
// by name, which is all that a node is authorized to do. The watch continues as long as a pod uses the object.
type objects struct {
	client       kubernetes.Interface
	log          *slog.Logger
	node         string // name of this node
	changed      func(types.UID)
	certificates *podCertificates

	mu     sync.Mutex
	wg     sync.WaitGroup
	known  map[ref]*object
	tokens map[tokenKey]token
}

type ref struct{ kind, namespace, name string }

// These are the kinds of objects that are read.
const (
	configMaps     = "configmaps"
	secrets        = "secrets"
	trustBundles   = "clustertrustbundles"
	signersBundles = "clustertrustbundles of signer" // all bundles of a signer

	certificateRequests = "podcertificaterequests"
)

// revised is an object or a list that has a resource version.
type revised interface {
	runtime.Object
	GetResourceVersion() string
}

type object struct {
	cancel context.CancelFunc
	first  chan struct{} // closed after the first read
	once   sync.Once
	value  revised
	err    error
	users  map[types.UID]bool
}

type tokenKey struct {
	pod      types.UID
	audience string
	lifetime time.Duration
}

type token struct {
	value string
	renew time.Time
}

func newObjects(client kubernetes.Interface, log *slog.Logger, node string, registered func() *corev1.Node,
	changed func(types.UID)) *objects {
	o := &objects{client: client, log: log, node: node, changed: changed, known: map[ref]*object{},
		tokens: map[tokenKey]token{}}
	o.certificates = &podCertificates{objects: o, node: registered, now: time.Now,
		known: map[sourceKey]*podCertificate{}}
	return o
}

// run waits until ctx ends. Then it stops all watches and waits for them.
func (o *objects) run(ctx context.Context) {
	<-ctx.Done()
	o.mu.Lock()
	for _, x := range o.known {
		x.cancel()
	}
	o.mu.Unlock()
	o.wg.Wait()
}

// user is the context key of the pod for which an object is read.
type user struct{}

func forPod(ctx context.Context, uid types.UID) context.Context {
	return context.WithValue(ctx, user{}, uid)
}

// ConfigMap returns the current ConfigMap.
func (o *objects) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	v, err := o.get(ctx, ref{configMaps, namespace, name})
	if err != nil {
		return nil, err
	}
	return v.(*corev1.ConfigMap), nil
}

// Secret returns the current secret.
func (o *objects) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	v, err := o.get(ctx, ref{secrets, namespace, name})
	if err != nil {
		return nil, err
	}
	return v.(*corev1.Secret), nil
}

// TrustBundles returns the bundle with the given name. Without a name, it returns all bundles of the signer.
func (o *objects) TrustBundles(ctx context.Context, name, signer string) ([]certificatesv1.ClusterTrustBundle, error) {
	r := ref{kind: trustBundles, name: name}
	if name == "" {
		r = ref{kind: signersBundles, name: signer}
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
func (o *objects) PodCertificate(ctx context.Context, p *corev1.Pod, name string, index int,
	source *corev1.PodCertificateProjection) (volume.KeyPair, time.Time, error) {
	return o.certificates.Get(ctx, p, name, index, source)
}

// certificateRequest returns the current state of a request for a pod's certificate.
func (o *objects) certificateRequest(ctx context.Context, r ref) (*certificatesv1.PodCertificateRequest, error) {
	v, err := o.get(ctx, r)
	if err != nil {
		return nil, err
	}
	return v.(*certificatesv1.PodCertificateRequest), nil
}

func (o *objects) get(ctx context.Context, r ref) (revised, error) {
	uid, _ := ctx.Value(user{}).(types.UID)
	if uid == "" {
		return o.read(ctx, r)
	}
	o.mu.Lock()
	x := o.known[r]
	if x == nil {
		wctx, cancel := context.WithCancel(context.Background())
		x = &object{cancel: cancel, first: make(chan struct{}), users: map[types.UID]bool{}}
		o.known[r] = x
		o.wg.Go(func() { o.follow(wctx, r, x) })
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

func (o *objects) read(ctx context.Context, r ref) (revised, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	switch r.kind {
	case secrets:
		return o.client.CoreV1().Secrets(r.namespace).Get(ctx, r.name, metav1.GetOptions{})
	case trustBundles:
		return o.client.CertificatesV1().ClusterTrustBundles().Get(ctx, r.name, metav1.GetOptions{})
	case signersBundles:
		return o.client.CertificatesV1().ClusterTrustBundles().List(ctx,
			metav1.ListOptions{FieldSelector: r.selector(o.node)})
	case certificateRequests:
		return o.client.CertificatesV1().PodCertificateRequests(r.namespace).Get(ctx, r.name, metav1.GetOptions{})
	}
	return o.client.CoreV1().ConfigMaps(r.namespace).Get(ctx, r.name, metav1.GetOptions{})
}

// selector returns the field selector for the reference, within what the node is authorized to watch.
func (r ref) selector(node string) string {
	switch r.kind {
	case signersBundles:
		return fields.OneTermEqualSelector("spec.signerName", r.name).String()
	case certificateRequests:
		return fields.SelectorFromSet(fields.Set{"metadata.name": r.name, "spec.nodeName": node}).String()
	}
	return fields.OneTermEqualSelector("metadata.name", r.name).String()
}

func (o *objects) watch(ctx context.Context, r ref, version string) (watch.Interface, error) {
	options := metav1.ListOptions{FieldSelector: r.selector(o.node), ResourceVersion: version,
		AllowWatchBookmarks: true}
	switch r.kind {
	case secrets:
		return o.client.CoreV1().Secrets(r.namespace).Watch(ctx, options)
	case trustBundles, signersBundles:
		return o.client.CertificatesV1().ClusterTrustBundles().Watch(ctx, options)
	case certificateRequests:
		return o.client.CertificatesV1().PodCertificateRequests(r.namespace).Watch(ctx, options)
	}
	return o.client.CoreV1().ConfigMaps(r.namespace).Watch(ctx, options)
}

// follow keeps the cached object x up to date until ctx ends.
func (o *objects) follow(ctx context.Context, r ref, x *object) {
	delay := time.Second
	for ctx.Err() == nil {
		value, err := o.read(ctx, r)
		o.learn(x, value, err)
		x.once.Do(func() { close(x.first) })
		version := ""
		if err == nil {
			version = value.GetResourceVersion()
		}
		if err == nil || apierrors.IsNotFound(err) {
			w, werr := o.watch(ctx, r, version)
			if werr == nil {
				delay = time.Second
				o.drain(ctx, r, x, w)
			}
		}
		if !pause(ctx, delay) {
			return
		}
		delay = min(2*delay, 30*time.Second)
	}
}

func (o *objects) drain(ctx context.Context, r ref, x *object, w watch.Interface) {
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-w.ResultChan():
			if !ok {
				return
			}
			if r.kind == signersBundles &&
				(e.Type == watch.Added || e.Type == watch.Modified || e.Type == watch.Deleted) {
				value, err := o.read(ctx, r) // one bundle changed: read the whole list again
				if err != nil {
					return
				}
				o.learn(x, value, nil)
				continue
			}
			switch e.Type {
			case watch.Added, watch.Modified:
				if value, ok := e.Object.(revised); ok {
					o.learn(x, value, nil)
				}
			case watch.Deleted:
				o.learn(x, nil, apierrors.NewNotFound(corev1.Resource("object"), "deleted"))
			case watch.Error:
				return
			}
		}
	}
}

// learn stores the result of a read. It wakes the pods that use the object if it has changed.
func (o *objects) learn(x *object, value revised, err error) {
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
			o.changed(uid)
		}
	default: // at the first read, the caller waits for the value itself
	}
}

// drop removes one pod's use of an object. It stops the watch after the last use.
func (o *objects) drop(uid types.UID, r ref) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if x := o.known[r]; x != nil {
		if delete(x.users, uid); len(x.users) == 0 {
			x.cancel()
			delete(o.known, r)
		}
	}
}

// forget removes all uses by the given pod, with its tokens and certificates.
func (o *objects) forget(uid types.UID) {
	o.certificates.forget(uid)
	o.mu.Lock()
	defer o.mu.Unlock()
	for r, x := range o.known {
		if delete(x.users, uid); len(x.users) == 0 {
			x.cancel()
			delete(o.known, r)
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
func (o *objects) Token(
	ctx context.Context,
	p *corev1.Pod,
	audience string,
	lifetime time.Duration,
) (string, time.Time, error) {
	k := tokenKey{p.UID, audience, lifetime}
	o.mu.Lock()
	have, ok := o.tokens[k]
	o.mu.Unlock()
	if ok && time.Now().Before(have.renew) {
		return have.value, have.renew, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
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
	asked := time.Now()
	answer, err := o.client.CoreV1().
		ServiceAccounts(p.Namespace).
		CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", time.Time{}, fmt.Errorf("request a token of service account %s/%s: %w", p.Namespace, account, err)
	}
	left := answer.Status.ExpirationTimestamp.Sub(asked)
	got := token{answer.Status.Token, asked.Add(min(left*4/5, 24*time.Hour))}
	o.mu.Lock()
	o.tokens[k] = got
	o.mu.Unlock()
	return got.value, got.renew, nil
}

// Claim reads the current claim from the API.
func (o *objects) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return o.client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
}

// Volume reads the current persistent volume from the API.
func (o *objects) Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return o.client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
}
