package kubernetes

import (
	"context"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"clusterctl/kube/scheme"
)

// Object is a pointer to an object with metadata.
type Object interface {
	runtime.Object
	metav1.Object
}

// Creator creates objects. Reviews, which the API server answers and does not store, can only be created.
type Creator[P Object] interface {
	Create(ctx context.Context, obj P, opts metav1.CreateOptions) (P, error)
}

// Objects reads and writes the objects of a kind: in one namespace, in all namespaces, or of a kind without namespaces.
// An object that is returned with an error has no meaning.
type Objects[P Object, L runtime.Object] interface {
	Creator[P]
	Update(ctx context.Context, obj P, opts metav1.UpdateOptions) (P, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	Get(ctx context.Context, name string, opts metav1.GetOptions) (P, error)
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	Patch(
		ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions,
		subresources ...string,
	) (P, error)
}

// WithStatus adds the subresource status.
type WithStatus[P Object, L runtime.Object] interface {
	Objects[P, L]
	UpdateStatus(ctx context.Context, obj P, opts metav1.UpdateOptions) (P, error)
}

// Collection adds the deletion of many objects with one request.
type Collection[P Object, L runtime.Object] interface {
	Objects[P, L]
	DeleteCollection(ctx context.Context, opts metav1.DeleteOptions, list metav1.ListOptions) error
}

// objects implements WithStatus and Collection. It sends requests with the untyped methods of resource, so that the
// code is not instantiated for each type.
type objects[P Object, L runtime.Object] struct{ resource }

func newObjects[P Object, L runtime.Object](client rest.Interface, namespace, name string) objects[P, L] {
	return objects[P, L]{resource{client, namespace, name}}
}

// newOf returns a new object of a type.
func newOf[T runtime.Object]() T {
	obj, _ := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
	return obj
}

func (o objects[P, L]) Create(ctx context.Context, obj P, opts metav1.CreateOptions) (P, error) {
	into := newOf[P]()
	return into, o.create(ctx, obj, &opts, into)
}

func (o objects[P, L]) Update(ctx context.Context, obj P, opts metav1.UpdateOptions) (P, error) {
	into := newOf[P]()
	return into, o.update(ctx, obj, &opts, into)
}

func (o objects[P, L]) UpdateStatus(ctx context.Context, obj P, opts metav1.UpdateOptions) (P, error) {
	into := newOf[P]()
	return into, o.update(ctx, obj, &opts, into, "status")
}

func (o objects[P, L]) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	return o.request(o.rest.Delete()).Name(name).Body(&opts).Do(ctx).Error()
}

func (o objects[P, L]) DeleteCollection(ctx context.Context, opts metav1.DeleteOptions, list metav1.ListOptions) error {
	return o.withSelection(o.rest.Delete(), list).Body(&opts).Do(ctx).Error()
}

func (o objects[P, L]) Get(ctx context.Context, name string, opts metav1.GetOptions) (P, error) {
	into := newOf[P]()
	return into, o.request(o.rest.Get()).Name(name).VersionedParams(&opts, scheme.ParameterCodec()).Do(ctx).Into(into)
}

func (o objects[P, L]) List(ctx context.Context, opts metav1.ListOptions) (L, error) {
	into := newOf[L]()
	return into, o.withSelection(o.rest.Get(), opts).Do(ctx).Into(into)
}

func (o objects[P, L]) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	return o.withSelection(o.rest.Get(), opts).Watch(ctx)
}

func (o objects[P, L]) Patch(
	ctx context.Context,
	name string,
	kind types.PatchType,
	data []byte,
	opts metav1.PatchOptions,
	subresources ...string,
) (P, error) {
	into := newOf[P]()
	return into, o.patch(ctx, name, kind, data, &opts, into, subresources...)
}

// resource makes requests for the objects of a resource.
type resource struct {
	rest      rest.Interface
	namespace string // empty for all namespaces, and for kinds without namespaces
	name      string // such as pods
}

func (p resource) request(r *rest.Request) *rest.Request {
	return r.UseProtobufAsDefault().NamespaceIfScoped(p.namespace, p.namespace != "").Resource(p.name)
}

// withSelection returns a request for the objects that options select.
func (p resource) withSelection(r *rest.Request, opts metav1.ListOptions) *rest.Request {
	var timeout time.Duration
	if opts.TimeoutSeconds != nil {
		timeout = time.Duration(*opts.TimeoutSeconds) * time.Second
	}
	return p.request(r).VersionedParams(&opts, scheme.ParameterCodec()).Timeout(timeout)
}

func (p resource) create(
	ctx context.Context, obj runtime.Object, opts *metav1.CreateOptions, into runtime.Object,
) error {
	return p.request(p.rest.Post()).VersionedParams(opts, scheme.ParameterCodec()).Body(obj).Do(ctx).Into(into)
}

func (p resource) update(
	ctx context.Context, obj Object, opts *metav1.UpdateOptions, into runtime.Object, subresources ...string,
) error {
	return p.request(p.rest.Put()).Name(obj.GetName()).SubResource(subresources...).
		VersionedParams(opts, scheme.ParameterCodec()).Body(obj).Do(ctx).Into(into)
}

func (p resource) patch(
	ctx context.Context, name string, kind types.PatchType, data []byte, opts *metav1.PatchOptions, into runtime.Object,
	subresources ...string,
) error {
	return p.request(p.rest.Patch(kind)).Name(name).SubResource(subresources...).
		VersionedParams(opts, scheme.ParameterCodec()).Body(data).Do(ctx).Into(into)
}
