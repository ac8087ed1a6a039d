package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// Metadata returns a client for objects' metadata with cheap deletions, of which the garbage collector makes thousands.
// client-go's client converts the options of each deletion, and decodes an answer that is not needed.
func Metadata(cfg *rest.Config, over *http.Client) (metadata.Interface, error) {
	whole, err := metadata.NewForConfigAndClient(cfg, over)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return deleting{whole, over, base}, nil
}

type deleting struct {
	metadata.Interface
	over *http.Client
	base *url.URL
}

// Resource returns the client for a resource.
func (d deleting) Resource(of schema.GroupVersionResource) metadata.Getter {
	return deletesAnywhere{d.Interface.Resource(of), d, of}
}

type deletesAnywhere struct {
	metadata.Getter
	d  deleting
	of schema.GroupVersionResource
}

func (a deletesAnywhere) Namespace(namespace string) metadata.ResourceInterface {
	return deletesWithin{a.Getter.Namespace(namespace), a, namespace}
}

func (a deletesAnywhere) Delete(
	ctx context.Context,
	name string,
	options metav1.DeleteOptions,
	subresources ...string,
) error {
	return a.d.delete(ctx, a.Getter, a.of, "", name, options, subresources)
}

type deletesWithin struct {
	metadata.ResourceInterface
	from      deletesAnywhere
	namespace string
}

func (w deletesWithin) Delete(
	ctx context.Context,
	name string,
	options metav1.DeleteOptions,
	subresources ...string,
) error {
	return w.from.d.delete(ctx, w.ResourceInterface, w.from.of, w.namespace, name, options, subresources)
}

// mostRefusal is the maximum number of bytes that are read of an error answer.
const mostRefusal = 1 << 20

// delete sends one request. If the answer is neither a success nor one of the usual errors, it repeats the request with
// client-go's client, which handles and explains such answers.
func (d deleting) delete(
	ctx context.Context,
	whole metadata.ResourceInterface,
	of schema.GroupVersionResource,
	namespace, name string,
	options metav1.DeleteOptions,
	below []string,
) error {
	if name == "" || len(below) > 0 {
		return whole.Delete(ctx, name, options, below...)
	}
	segments := []string{"apis", of.Group, of.Version}
	if of.Group == "" {
		segments = []string{"api", of.Version}
	}
	if namespace != "" {
		segments = append(segments, "namespaces", namespace)
	}
	options.Kind, options.APIVersion = "DeleteOptions", "v1"
	body, err := json.Marshal(options)
	if err != nil {
		return fmt.Errorf("encode what is wanted of a deletion: %w", err)
	}
	r, err := http.NewRequestWithContext(
		ctx,
		http.MethodDelete,
		d.base.JoinPath(append(segments, of.Resource, url.PathEscape(name))...).String(),
		bytes.NewReader(body),
	)
	if err != nil {
		return fmt.Errorf("delete %s %s: %w", of.Resource, name, err)
	}
	r.Header.Set("Accept", runtime.ContentTypeJSON)
	r.Header.Set("Content-Type", runtime.ContentTypeJSON)
	answer, err := d.over.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK, http.StatusAccepted:
		_, _ = io.CopyN(
			io.Discard,
			answer.Body,
			mostRefusal,
		) // the content is not needed, but the stream must end
		return nil
	case http.StatusNotFound, http.StatusConflict:
		refusal := &apierrors.StatusError{}
		if json.NewDecoder(io.LimitReader(answer.Body, mostRefusal)).Decode(&refusal.ErrStatus) == nil &&
			refusal.ErrStatus.Kind == "Status" &&
			refusal.ErrStatus.Status == metav1.StatusFailure {
			return refusal
		}
	}
	return whole.Delete(ctx, name, options)
}
