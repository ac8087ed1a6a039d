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
func Metadata(cfg *rest.Config, client *http.Client) (metadata.Interface, error) {
	whole, err := metadata.NewForConfigAndClient(cfg, client)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return deletingClient{whole, client, base}, nil
}

type deletingClient struct {
	metadata.Interface
	httpClient *http.Client
	base       *url.URL
}

// Resource returns the client for a resource.
func (d deletingClient) Resource(of schema.GroupVersionResource) metadata.Getter {
	return deletingGetter{d.Interface.Resource(of), d, of}
}

type deletingGetter struct {
	metadata.Getter
	client   deletingClient
	resource schema.GroupVersionResource
}

func (a deletingGetter) Namespace(namespace string) metadata.ResourceInterface {
	return deletingResource{a.Getter.Namespace(namespace), a, namespace}
}

func (a deletingGetter) Delete(
	ctx context.Context,
	name string,
	options metav1.DeleteOptions,
	subresources ...string,
) error {
	return a.client.delete(ctx, a.Getter, a.resource, "", name, options, subresources)
}

type deletingResource struct {
	metadata.ResourceInterface
	getter    deletingGetter
	namespace string
}

func (w deletingResource) Delete(
	ctx context.Context,
	name string,
	options metav1.DeleteOptions,
	subresources ...string,
) error {
	return w.getter.client.delete(ctx, w.ResourceInterface, w.getter.resource, w.namespace, name, options, subresources)
}

// maxErrorBody is the maximum number of bytes that are read of an error answer.
const maxErrorBody = 1 << 20

// delete sends one request. If the answer is neither a success nor one of the usual errors, it repeats the request with
// client-go's client, which handles and explains such answers.
func (d deletingClient) delete(
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
	r, err := http.NewRequestWithContext(ctx, http.MethodDelete,
		d.base.JoinPath(append(segments, of.Resource, url.PathEscape(name))...).String(), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("delete %s %s: %w", of.Resource, name, err)
	}
	r.Header.Set("Accept", runtime.ContentTypeJSON)
	r.Header.Set("Content-Type", runtime.ContentTypeJSON)
	answer, err := d.httpClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK, http.StatusAccepted:
		_, _ = io.CopyN(io.Discard, answer.Body, maxErrorBody) // the content is not needed, but the stream must end
		return nil
	case http.StatusNotFound, http.StatusConflict:
		refusal := &apierrors.StatusError{}
		if json.NewDecoder(io.LimitReader(answer.Body, maxErrorBody)).Decode(&refusal.ErrStatus) == nil &&
			refusal.ErrStatus.Kind == "Status" &&
			refusal.ErrStatus.Status == metav1.StatusFailure {
			return refusal
		}
	}
	return whole.Delete(ctx, name, options)
}
