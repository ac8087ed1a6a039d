package validate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The name of a resource has the size of a page, which a client chooses. Parsing a huge one would take minutes.
func TestSizesOfHugePagesAreBounded(t *testing.T) {
	for name, isValid := range map[corev1.ResourceName]bool{
		"hugepages-2Mi": true, "hugepages-3Mi": false, "hugepages-1e-999999999": false, "hugepages-1e999999999": false,
	} {
		errs := Quantities(corev1.ResourceList{name: resource.MustParse("4Mi")}, field.NewPath("limits"))
		if (len(errs) == 0) != isValid {
			t.Errorf("%s: %v", name, errs)
		}
	}
}
