package ownership

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// conflict is a set of fields of another manager that an apply would change.
type conflict struct {
	owner  metav1.ManagedFieldsEntry
	fields *fieldpath.Set
}

// name returns how errors name the owner of the fields.
func (c conflict) name() string {
	name := fmt.Sprintf("%q", c.owner.Manager)
	if c.owner.Subresource != "" {
		name += fmt.Sprintf(" with subresource %q", c.owner.Subresource)
	}
	if c.owner.Operation == metav1.ManagedFieldsOperationUpdate {
		name += " using " + c.owner.APIVersion
	}
	return name
}

// id returns the text by which the library orders owners.
func (c conflict) id() string {
	id := metav1.ManagedFieldsEntry{
		Manager: c.owner.Manager, Operation: c.owner.Operation, Subresource: c.owner.Subresource,
	}
	if c.owner.Operation == metav1.ManagedFieldsOperationUpdate {
		id.APIVersion = c.owner.APIVersion
	}
	text, err := json.Marshal(&id)
	if err != nil {
		return c.owner.Manager // texts can always be encoded
	}
	return string(text)
}

// conflictError returns the error of an apply with conflicts, as the library returns it.
func conflictError(conflicts []conflict) error {
	slices.SortFunc(conflicts, func(a, b conflict) int { return strings.Compare(a.id(), b.id()) })
	var causes []metav1.StatusCause
	var lines []string
	for _, c := range conflicts {
		name := c.name()
		lines = append(lines, fmt.Sprintf("conflicts with %s:", name))
		c.fields.Iterate(func(path fieldpath.Path) {
			field := path.String()
			causes = append(causes, metav1.StatusCause{
				Type: metav1.CauseTypeFieldManagerConflict, Message: "conflict with " + name, Field: field,
			})
			lines = append(lines, "- "+field)
		})
	}
	if len(causes) == 1 {
		return apierrors.NewApplyConflict(causes,
			fmt.Sprintf("Apply failed with 1 conflict: %s: %s", causes[0].Message, causes[0].Field))
	}
	return apierrors.NewApplyConflict(causes,
		fmt.Sprintf("Apply failed with %d conflicts: %s", len(causes), strings.Join(lines, "\n")))
}
