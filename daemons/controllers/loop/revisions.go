package loop

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	appslisters "k8s.io/client-go/listers/apps/v1"

	"clusterctl/kube/kubernetes"
)

// Revisions stores the current and former templates of an owner as ControllerRevisions. The newest has the highest
// number.
type Revisions struct {
	Client kubernetes.Interface
	Lister appslisters.ControllerRevisionLister
	Label  string // the label that holds a revision's hash
}

// RevisionOwner describes an owner of revisions.
type RevisionOwner struct {
	Owner      metav1.Object
	Kind       schema.GroupVersionKind
	Selector   *metav1.LabelSelector
	Template   *corev1.PodTemplateSpec
	Collisions **int32 // in the owner's status: the number of hash collisions
	Limit      *int32  // how many former revisions to retain; nil means ten
	// IsUsed reports whether something still uses a revision.
	IsUsed func(*appsv1.ControllerRevision) bool
	// ReadLive reads the owner from the server, so that a deleted owner adopts nothing.
	ReadLive func(context.Context) (metav1.Object, error)
}

// Record ensures that a revision holds the owner's template, and that it is the newest one. It returns that revision
// and all of the owner's, the oldest first. It deletes former revisions that exceed the limit and are not used.
func (r Revisions) Record(
	ctx context.Context,
	o RevisionOwner,
) (update *appsv1.ControllerRevision, all []*appsv1.ControllerRevision, err error) {
	data, err := templatePatch(o.Template)
	if err != nil {
		return nil, nil, err
	}
	selector, err := metav1.LabelSelectorAsSelector(o.Selector)
	if err != nil {
		return nil, nil, err
	}
	holds := func(c *appsv1.ControllerRevision) bool { return bytes.Equal(c.Data.Raw, data) }
	list, err := r.Lister.ControllerRevisions(o.Owner.GetNamespace()).List(selector)
	if err != nil {
		return nil, nil, err
	}
	if !slices.ContainsFunc(list,
		holds) { // the cache may be behind, and a new revision must have the highest number of all
		if list, err = r.list(ctx, o, selector); err != nil {
			return nil, nil, err
		}
	}
	if all, err = r.claim(ctx, o, list); err != nil {
		return nil, nil, err
	}
	var highest int64
	if len(all) > 0 {
		highest = all[len(all)-1].Revision
	}
	i := slices.IndexFunc(all, holds)
	switch {
	case i < 0:
		if update, err = r.create(ctx, o, data, highest+1); err != nil {
			return nil, nil, err
		}
	case all[i].Revision < highest: // after an undo, an old template is the newest
		update = all[i].DeepCopy()
		update.Revision = highest + 1
		if update, err = r.Client.AppsV1().ControllerRevisions(update.Namespace).Update(ctx, update,
			metav1.UpdateOptions{}); err != nil {
			return nil, nil, fmt.Errorf("renumber ControllerRevision %s: %w", all[i].Name, err)
		}
	default:
		update = all[i]
	}
	former := slices.DeleteFunc(slices.Clone(all),
		func(c *appsv1.ControllerRevision) bool { return c.UID == update.UID })
	return update, append(slices.Clone(former), update), r.deleteFormer(ctx, o, former)
}

// list reads the revisions that match a selector from the server.
func (r Revisions) list(
	ctx context.Context,
	o RevisionOwner,
	selector labels.Selector,
) ([]*appsv1.ControllerRevision, error) {
	found, err := r.Client.AppsV1().
		ControllerRevisions(o.Owner.GetNamespace()).
		List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, fmt.Errorf("list the revisions of %s %s/%s: %w", o.Kind.Kind, o.Owner.GetNamespace(),
			o.Owner.GetName(), err)
	}
	list := make([]*appsv1.ControllerRevision, len(found.Items))
	for i := range found.Items {
		list[i] = &found.Items[i]
	}
	return list, nil
}

// claim returns the owner's revisions, the oldest first. It adopts orphans: a former owner of the same name was deleted
// without its dependents, and the pods that it left refer to those revisions.
func (r Revisions) claim(
	ctx context.Context,
	o RevisionOwner,
	all []*appsv1.ControllerRevision,
) (mine []*appsv1.ControllerRevision, err error) {
	checked := false
	for _, c := range all {
		if metav1.IsControlledBy(c, o.Owner) {
			mine = append(mine, c)
		}
		if metav1.GetControllerOfNoCopy(c) != nil || c.DeletionTimestamp != nil {
			continue
		}
		if !checked {
			if ok, err := canAdopt(ctx, o.Owner, o.Kind, o.ReadLive); !ok {
				return nil, errors.Join(err, fmt.Errorf("%s %s/%s is being deleted", o.Kind.Kind,
					o.Owner.GetNamespace(), o.Owner.GetName()))
			}
			checked = true
		}
		adopted, err := r.adopt(ctx, o, c)
		if err != nil {
			return nil, err
		}
		if adopted != nil {
			mine = append(mine, adopted)
		}
	}
	slices.SortFunc(mine, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name))
	})
	return mine, nil
}

func (r Revisions) adopt(
	ctx context.Context,
	o RevisionOwner,
	c *appsv1.ControllerRevision,
) (*appsv1.ControllerRevision, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"ownerReferences": []metav1.OwnerReference{*metav1.NewControllerRef(o.Owner, o.Kind)}, "uid": c.UID,
	}})
	if err != nil {
		return nil, err
	}
	adopted, err := r.Client.AppsV1().
		ControllerRevisions(c.Namespace).
		Patch(ctx, c.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return nil, nil // deleted, or adopted by another owner
	}
	return adopted, err
}

// ByName returns one of an owner's revisions by its name, or nil if it does not exist. It asks the server if the cache
// does not show the revision yet.
func (r Revisions) ByName(
	ctx context.Context,
	owner metav1.Object,
	all []*appsv1.ControllerRevision,
	name string,
) (*appsv1.ControllerRevision, error) {
	for _, c := range all {
		if c.Name == name {
			return c, nil
		}
	}
	c, err := r.Client.AppsV1().ControllerRevisions(owner.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read ControllerRevision %s: %w", name, err)
	case !metav1.IsControlledBy(c, owner):
		return nil, nil
	}
	return c, nil
}

// create creates a revision. Its name depends on the template, so that a second attempt finds it. If another template
// has that name, the collision count is increased, which changes the hash.
func (r Revisions) create(
	ctx context.Context,
	o RevisionOwner,
	data []byte,
	number int64,
) (*appsv1.ControllerRevision, error) {
	client := r.Client.AppsV1().ControllerRevisions(o.Owner.GetNamespace())
	for {
		hash := hashOf(data, *o.Collisions)
		c := &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:       o.Owner.GetNamespace(),
				Name:            o.Owner.GetName() + "-" + hash,
				Labels:          maps.Clone(o.Template.Labels),
				Annotations:     o.Owner.GetAnnotations(),
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(o.Owner, o.Kind)},
			},
			Data: runtime.RawExtension{Raw: data}, Revision: number,
		}
		if c.Labels == nil {
			c.Labels = map[string]string{}
		}
		c.Labels[r.Label] = hash
		made, err := client.Create(ctx, c, metav1.CreateOptions{})
		if err == nil {
			return made, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("record the template of %s %s/%s: %w", o.Kind.Kind, c.Namespace, o.Owner.GetName(),
				err)
		}
		existing, err := client.Get(ctx, c.Name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("read ControllerRevision %s: %w", c.Name, err)
		}
		if same := bytes.Equal(existing.Data.Raw, data); same && metav1.IsControlledBy(existing, o.Owner) {
			return existing, nil
		} else if same && metav1.GetControllerOfNoCopy(existing) == nil {
			// the cache does not show it yet
			return nil, fmt.Errorf("ControllerRevision %s is to be taken in first", c.Name)
		}
		n := int32(1)
		if *o.Collisions != nil {
			n = **o.Collisions + 1
		}
		*o.Collisions = &n
	}
}

// hashOf returns the hash of a template for use in names. A count of zero gives the same name as no count, because the
// first status write turns nil into zero. With different names, a leader that does not see the revision yet would
// record the template a second time, and replace all pods for it.
func hashOf(data []byte, collisions *int32) string {
	h := fnv.New32a()
	_, _ = h.Write(data)
	if collisions != nil && *collisions > 0 {
		_, _ = h.Write([]byte(strconv.Itoa(int(*collisions))))
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}

func (r Revisions) deleteFormer(ctx context.Context, o RevisionOwner, former []*appsv1.ControllerRevision) error {
	limit := 10
	if o.Limit != nil {
		limit = int(*o.Limit)
	}
	unused := slices.DeleteFunc(former, o.IsUsed)
	for i := range len(unused) - limit {
		if err := r.Client.AppsV1().ControllerRevisions(unused[i].Namespace).Delete(ctx, unused[i].Name,
			IfUnchanged(unused[i])); err != nil &&
			!apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// templatePatch returns a revision's data in the form that kubectl rollout undo expects: a patch that restores the
// template.
func templatePatch(template *corev1.PodTemplateSpec) ([]byte, error) {
	raw, err := json.Marshal(template)
	if err != nil {
		return nil, err
	}
	fields := map[string]any{}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	fields["$patch"] = "replace"
	return json.Marshal(map[string]any{"spec": map[string]any{"template": fields}})
}

// TemplateOf returns the template that a revision holds.
func TemplateOf(c *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	var data struct {
		Spec struct {
			Template *corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(c.Data.Raw, &data); err != nil {
		return nil, fmt.Errorf("read ControllerRevision %s: %w", c.Name, err)
	}
	if data.Spec.Template == nil {
		return nil, fmt.Errorf("ControllerRevision %s holds no template", c.Name)
	}
	return data.Spec.Template, nil
}
