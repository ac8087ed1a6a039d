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

// Metadata returns a client of objects' metadata whose deletions, of which a collector of garbage makes thousands, cost
// no more than their request: client-go's converts each one's options, and reads an answer of which nothing is wanted.
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

// Resource returns what is done to objects of a kind.
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

// mostRefusal is how much is read of an answer that refuses.
const mostRefusal = 1 << 20

// delete sends one request. What is not answered by a deletion, or by what every deletion must expect, is client-go's
// to ask again and to explain.
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
		) // of what was deleted nothing is wanted, but that its stream ends well
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
