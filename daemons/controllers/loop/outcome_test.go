package loop

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestWritesAreRepeatedWhileTheirOutcomeIsUnknown(t *testing.T) {
	lost, within := errors.New("connection reset"), apierrors.NewInternalError(errors.New("failed calling webhook"))
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", errors.New("changed"))
	for name, c := range map[string]struct {
		answers []error // the last one is repeated
		tries   int
		want    error
	}{
		"it is done":                                      {[]error{nil}, 1, nil},
		"it is refused":                                   {[]error{conflict}, 1, conflict},
		"nobody answers at first":                         {[]error{lost, lost, nil}, 3, nil},
		"the server fails within, every time":             {[]error{within}, 3, within},
		"the server fails within for a moment":            {[]error{within, within, nil}, 3, nil},
		"nobody answers, and then the server has trouble": {[]error{lost, within, within, within, within, nil}, 6, nil},
	} {
		t.Run(name, func(t *testing.T) {
			tries := 0
			err := Context{}.retryUntilKnown(t.Context(), func() error {
				tries++
				return c.answers[min(tries, len(c.answers))-1]
			})
			if !errors.Is(err, c.want) || tries != c.tries {
				t.Errorf("%d tries, %v; want %d, %v", tries, err, c.tries, c.want)
			}
		})
	}
}
