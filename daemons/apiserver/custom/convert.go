package custom

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"

	"clusterctl/daemons/apiserver/backend"
	"clusterctl/daemons/kinds"
)

// Caller calls webhooks.
type Caller interface {
	Call(ctx context.Context, w backend.Webhook, within time.Duration, in, out any) error
}

const (
	conversionTimeout = 30 * time.Second
	// maxConverted is how many objects one review carries at most, so that the size of a review stays within what
	// webhooks accept.
	maxConverted = 500
)

// webhookConverter converts objects by calling a conversion webhook.
type webhookConverter struct {
	call    Caller
	to      backend.Webhook
	version string // version of the ConversionReview
}

func newConverter(d *apiextensionsv1.CustomResourceDefinition, call Caller) (*webhookConverter, error) {
	hook := d.Spec.Conversion.Webhook
	if hook == nil || hook.ClientConfig == nil || call == nil {
		return nil, errors.New("it names no webhook that could be called")
	}
	c := &webhookConverter{call: call}
	client := admissionregistrationv1.WebhookClientConfig{
		URL:      hook.ClientConfig.URL,
		CABundle: hook.ClientConfig.CABundle,
	}
	if s := hook.ClientConfig.Service; s != nil {
		client.Service = &admissionregistrationv1.ServiceReference{
			Namespace: s.Namespace,
			Name:      s.Name,
			Path:      s.Path,
			Port:      s.Port,
		}
	}
	var err error
	if c.to, err = backend.NewWebhook(client); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(hook.ConversionReviewVersions, func(v string) bool { return v == "v1" || v == "v1beta1" })
	if i < 0 {
		return nil, errors.New("the webhook understands no version of a ConversionReview that is known here")
	}
	c.version = hook.ConversionReviewVersions[i]
	return c, nil
}

func (c *webhookConverter) convert(
	ctx context.Context,
	objs []*unstructured.Unstructured,
	to *kinds.Kind,
) ([]*unstructured.Unstructured, error) {
	out := make([]*unstructured.Unstructured, 0, len(objs))
	for some := range slices.Chunk(objs, maxConverted) {
		made, err := c.convertBatch(ctx, some, to)
		if err != nil {
			return nil, fmt.Errorf("conversion webhook for %s failed: %w", objs[0].GroupVersionKind(), err)
		}
		out = append(out, made...)
	}
	return out, nil
}

func (c *webhookConverter) convertBatch(
	ctx context.Context,
	objs []*unstructured.Unstructured,
	to *kinds.Kind,
) ([]*unstructured.Unstructured, error) {
	sent := &apiextensionsv1.ConversionReview{Request: &apiextensionsv1.ConversionRequest{
		UID: uuid.NewUUID(), DesiredAPIVersion: to.GVK.GroupVersion().String(),
	}}
	sent.Kind, sent.APIVersion = "ConversionReview", apiextensionsv1.GroupName+"/"+c.version
	for _, obj := range objs {
		data, err := json.Marshal(obj)
		if err != nil {
			return nil, fmt.Errorf("encode %s/%s: %w", obj.GetNamespace(), obj.GetName(), err)
		}
		sent.Request.Objects = append(sent.Request.Objects, runtime.RawExtension{Raw: data})
	}
	answer := &apiextensionsv1.ConversionReview{}
	if err := c.call.Call(ctx, c.to, conversionTimeout, sent, answer); err != nil {
		return nil, err
	}
	r := answer.Response
	switch {
	case r == nil:
		return nil, errors.New("no response provided")
	case c.version == "v1" && (answer.APIVersion != sent.APIVersion || answer.Kind != sent.Kind):
		return nil, fmt.Errorf("expected %s, Kind=%s, got %s, Kind=%s", sent.APIVersion, sent.Kind, answer.APIVersion,
			answer.Kind)
	case c.version == "v1" && r.UID != sent.Request.UID:
		return nil, fmt.Errorf("expected response.uid=%q, got %q", sent.Request.UID, r.UID)
	case r.Result.Status != metav1.StatusSuccess && r.Result.Message == "":
		return nil, fmt.Errorf("the webhook answered %q without an explanation", r.Result.Status)
	case r.Result.Status != metav1.StatusSuccess:
		return nil, errors.New(r.Result.Message)
	case len(r.ConvertedObjects) != len(objs):
		return nil, fmt.Errorf("returned %d objects, expected %d", len(r.ConvertedObjects), len(objs))
	}
	out := make([]*unstructured.Unstructured, len(objs))
	for i, raw := range r.ConvertedObjects {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(raw.Raw); err != nil {
			return nil, fmt.Errorf("invalid converted object at index %d: %w", i, err)
		}
		if err := restoreMetadata(u, objs[i], to); err != nil {
			return nil, fmt.Errorf("invalid converted object at index %d: %w", i, err)
		}
		out[i] = u
	}
	return out, nil
}

// restoreMetadata sets the metadata of a converted object to the original's, except labels and annotations. It returns
// an error if kind, name, namespace or UID have changed.
func restoreMetadata(made, from *unstructured.Unstructured, to *kinds.Kind) error {
	if after := made.GroupVersionKind(); after != to.GVK {
		return fmt.Errorf("expected %s, got %s", to.GVK, after)
	}
	for _, c := range []struct{ what, after, before string }{
		{"name", made.GetName(), from.GetName()}, {"namespace", made.GetNamespace(), from.GetNamespace()},
		{"uid", string(made.GetUID()), string(from.GetUID())},
	} {
		if c.after != c.before {
			return fmt.Errorf("metadata.%s must not change: it was %q and is %q", c.what, c.before, c.after)
		}
	}
	labels, annotations := made.GetLabels(), made.GetAnnotations()
	made.Object["metadata"] = from.DeepCopy().Object["metadata"]
	made.SetLabels(labels)
	made.SetAnnotations(annotations)
	return nil
}
