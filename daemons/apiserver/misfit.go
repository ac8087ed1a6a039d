package apiserver

import (
	"encoding/hex"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"

	"clusterctl/daemons/kinds"
)

// What a client sends may be no object of the kind that it is sent for. Why is told in upstream's words, but for the
// place in its code that it names.

// undecoded is why bytes are no object of a kind.
type undecoded struct {
	is    schema.GroupVersionKind // what they say they are
	want  string                  // kind
	data  []byte                  // the bytes, where they do not say
	cause error
}

func undecodable(gvk schema.GroupVersionKind, err error) error {
	return &undecoded{is: gvk, want: gvk.Kind, cause: err}
}

// unrecognized is that data do not even say what they are.
func unrecognized(data []byte, gvk schema.GroupVersionKind, err error) error {
	return &undecoded{want: gvk.Kind, data: data, cause: err}
}

// Error implements error.
func (u *undecoded) Error() string {
	if u.is.Kind != "" {
		return fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", u.is.Kind, u.is.Version, u.want, u.cause)
	}
	if u.want == "" { // options
		return u.cause.Error()
	}
	const shown = 30
	begin, more := u.data, ""
	if len(begin) > shown {
		begin, more = begin[:shown], " ..."
	}
	text := hex.EncodeToString(begin)
	switch {
	case len(begin) == 0:
		text = "<empty>"
	case begin[0] == '{':
		text = string(begin)
	}
	return fmt.Sprintf(
		"the object provided is unrecognized (must be of type %s): %v (%s%s)",
		u.want,
		u.cause,
		text,
		more,
	)
}

// Status implements APIStatus.
func (u *undecoded) Status() metav1.Status { return apierrors.NewBadRequest(u.Error()).ErrStatus }

// isKind says what is wrong with what was decoded, or could not be: most of all, that
// it is of another kind.
func isKind(data []byte, gvk schema.GroupVersionKind, obj runtime.Object, failed error) error {
	version, kind := obj.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	is := metav1.TypeMeta{APIVersion: version, Kind: kind}
	if failed != nil || version == "" && !gvk.Empty() { // which may be that it is none
		said, err := json.DefaultMetaFactory.Interpret(data)
		if err != nil {
			return unrecognized(data, gvk, err)
		}
		is.APIVersion, is.Kind = said.ToAPIVersionAndKind()
	}
	if err := matches(is, gvk, data); err != nil {
		return err
	}
	if failed != nil {
		return undecodable(gvk, failed)
	}
	return nil
}

// formerly are versions that clients still send of a kind, and that have its shape: kubectl
// evicts in the one that it was built with.
var formerly = map[schema.GroupVersionKind]string{evictionKind: "policy/v1beta1"}

// matches compares what an object says it is with what it should be; anything will do
// where that is empty (options have a kind in every group).
func matches(is metav1.TypeMeta, gvk schema.GroupVersionKind, data []byte) error {
	if gvk.Empty() {
		return nil
	}
	version, kind := gvk.ToAPIVersionAndKind()
	right := is.APIVersion == "" || is.APIVersion == version || is.APIVersion == formerly[gvk]
	if right && (is.Kind == "" || is.Kind == kind) {
		return nil
	}
	said := gvk
	if is.Kind != "" {
		said.Kind = is.Kind
	}
	if is.APIVersion != "" {
		gv, err := schema.ParseGroupVersion(is.APIVersion)
		if err != nil {
			return unrecognized(data, gvk, err)
		}
		said.Group, said.Version = gv.Group, gv.Version
	}
	return misfit(said, gvk)
}

// misfit refuses an object of another kind or version.
func misfit(is, want schema.GroupVersionKind) error {
	known := builtIn()
	other := known[is]
	switch {
	case is.GroupKind() == want.GroupKind(), other != nil && other == known[want]:
		return otherVersion(is, want)
	case other != nil:
		return &undecoded{
			is:   is,
			want: want.Kind,
			cause: fmt.Errorf(
				"converting (%s.%s) to (%s.%s): unknown conversion",
				is.Version,
				is.Kind,
				internal(want.Group),
				want.Kind,
			),
		}
	}
	return &undecoded{
		is:    is,
		want:  want.Kind,
		cause: fmt.Errorf("no kind %q is registered for version %q", is.Kind, is.GroupVersion()),
	}
}

func otherVersion(is, want schema.GroupVersionKind) error {
	return apierrors.NewBadRequest(
		fmt.Sprintf(
			"the API version in the data (%s) does not match the expected API version (%s)",
			is.GroupVersion(),
			want.GroupVersion(),
		),
	)
}

// builtIn are all kinds that are not declared by definitions.
var builtIn = sync.OnceValue(func() map[schema.GroupVersionKind]*kinds.Kind {
	all := map[schema.GroupVersionKind]*kinds.Kind{}
	for _, k := range kinds.All() {
		all[k.GVK] = k
		for _, a := range k.Aliases {
			all[a.GVK] = k
		}
	}
	return all
})

// internal is what upstream calls the version in which it works on a group's objects.
func internal(group string) string {
	switch name, _, _ := strings.Cut(group, "."); name {
	case "", "events":
		return "core"
	default:
		return name
	}
}
