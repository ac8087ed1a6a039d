package workload

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// namedMost is how many kinds are named where many have the same trouble.
const namedMost = 6

// unlisted says which kinds could not be listed, a sentence for each reason.
func unlisted(kinds []schema.GroupVersionResource, failed []error) (problems []string) {
	var reasons []string
	names, texts := map[string][]string{}, map[string]string{}
	for i, err := range failed {
		if err == nil {
			continue
		}
		reason, text := why(err)
		if _, ok := texts[reason]; !ok {
			reasons, texts[reason] = append(reasons, reason), text
		}
		names[reason] = append(names[reason], kinds[i].GroupResource().String())
	}
	for _, reason := range reasons {
		of := names[reason]
		some := strings.Join(of[:min(len(of), namedMost)], ", ")
		if more := len(of) - namedMost; more > 0 {
			some += fmt.Sprintf(" and %d more", more)
		}
		problems = append(
			problems,
			fmt.Sprintf(
				"objects of %d of %d kinds are missing or not all there (%s): %s",
				len(of),
				len(kinds),
				some,
				texts[reason],
			),
		)
	}
	return problems
}

// asked is what a client adds to a server's message: which kind it asked for.
var asked = regexp.MustCompile(` \((?:get|list) [^)]*\)$`)

// why returns what failures of several kinds have in common, and what to say of them.
func why(err error) (reason, text string) {
	if at := (*url.Error)(nil); errors.As(err, &at) { // names the kind in its URL
		return at.Err.Error(), at.Err.Error()
	}
	text = asked.ReplaceAllString(err.Error(), "")
	if r := apierrors.ReasonForError(err); r != metav1.StatusReasonUnknown {
		return string(r), text
	}
	return text, text
}
