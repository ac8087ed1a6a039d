package workload

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"clusterctl/provision/support"
)

const (
	gatherPage        = 500
	maxGatherBytes    = 4 << 20 // maximum bytes of one kind
	gatherTimeout     = 20 * time.Second
	maxGatherParallel = 6
)

// Gather returns all objects for a support bundle, in one file per kind. Of secrets and config maps it returns only the
// names and sizes of fields, and it hides known secret values. If a kind cannot be listed, its file contains the error,
// and problems names the kinds by reason.
func (l gatherClient) Gather(ctx context.Context, redactor *support.Redactor) (files []support.File, problems []string,
	err error) {
	listed, problems, err := l.listableKinds()
	if err != nil {
		return nil, nil, err
	}
	var kinds []schema.GroupVersionResource
	for _, k := range listed {
		kinds = append(kinds, k.resource)
	}
	files, refused := l.gatherAll(ctx, kinds, redactor)
	return files, append(problems, refused...), nil
}

// listedKind is a kind that can be listed.
type listedKind struct {
	resource schema.GroupVersionResource
	kind     string
}

// listableKinds returns all kinds that can be listed. Events are listed only in the core group.
func (l gatherClient) listableKinds() (kinds []listedKind, problems []string, err error) {
	lists, err := l.discoveryClient.ServerPreferredResources()
	if err != nil && len(lists) == 0 {
		return nil, nil, fmt.Errorf("ask the API for its kinds: %w", err)
	}
	if err != nil {
		problems = append(problems, fmt.Sprintf("kinds are missing from the API's objects: %v", err))
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "list") && gv.Group != "events.k8s.io" {
				kinds = append(kinds, listedKind{gv.WithResource(r.Name), r.Kind})
			}
		}
	}
	return kinds, problems, nil
}

// gatherAll lists kinds, maxGatherParallel at a time.
func (l gatherClient) gatherAll(
	ctx context.Context,
	kinds []schema.GroupVersionResource,
	redactor *support.Redactor,
) (files []support.File, problems []string) {
	files = make([]support.File, len(kinds))
	failed := make([]error, len(kinds))
	var g errgroup.Group
	g.SetLimit(maxGatherParallel)
	for i, kind := range kinds {
		g.Go(func() error {
			files[i], failed[i] = l.gather(ctx, kind, redactor)
			return nil
		})
	}
	_ = g.Wait() // never an error: a kind that cannot be listed does not stop the others
	return files, describeUnlisted(kinds, failed)
}

// gather lists a kind. After an error it returns what was read so far.
func (l gatherClient) gather(
	ctx context.Context,
	kind schema.GroupVersionResource,
	redactor *support.Redactor,
) (support.File, error) {
	var text strings.Builder
	var failed error
	ctx, cancel := context.WithTimeout(ctx, gatherTimeout)
	defer cancel()
	options := metav1.ListOptions{Limit: gatherPage}
	for {
		list, err := l.dynamic.Resource(kind).List(ctx, options)
		if err != nil && !apierrors.IsNotFound(err) {
			failed = err
			fmt.Fprintf(&text, "# %v\n", err)
		}
		if err != nil {
			break
		}
		for i := range list.Items {
			stripObject(&list.Items[i])
			support.RedactObject(list.Items[i].Object, redactor)
			out, err := yaml.Marshal(list.Items[i].Object)
			if err != nil {
				continue
			}
			text.WriteString("---\n")
			text.WriteString(support.Redact(string(out)))
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			break
		}
		if text.Len() > maxGatherBytes {
			text.WriteString("# the rest is left out\n")
			break
		}
	}
	return support.File{Name: kind.GroupResource().String() + ".yaml", Content: []byte(text.String())}, failed
}

// stripObject removes secrets and verbose fields.
func stripObject(o *unstructured.Unstructured) {
	o.SetManagedFields(nil)
	annotations := o.GetAnnotations()
	delete(annotations, "kubectl.kubernetes.io/last-applied-configuration") // it also contains a secret's data
	o.SetAnnotations(annotations)
	if kind := o.GetKind(); kind != "Secret" && kind != "ConfigMap" {
		return
	}
	for _, field := range []string{"data", "stringData", "binaryData"} {
		values, ok, err := unstructured.NestedMap(o.Object, field)
		if err != nil {
			unstructured.RemoveNestedField(o.Object, field)
			continue
		}
		if !ok {
			continue
		}
		for k, v := range values {
			text, _ := v.(string)
			values[k] = fmt.Sprintf("(%d bytes)", len(text))
		}
		o.Object[field] = values
	}
}
