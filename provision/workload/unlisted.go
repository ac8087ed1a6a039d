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

// maxNamedKinds is the maximum number of kinds that are named for one reason.
const maxNamedKinds = 6

// describeUnlisted describes the kinds that could not be listed, in one sentence for each reason.
func describeUnlisted(kinds []schema.GroupVersionResource, failed []error) (problems []string) {
	var reasons []string
	names, texts := map[string][]string{}, map[string]string{}
	for i, err := range failed {
		if err == nil {
			continue
		}
		reason, text := listFailure(err)
		if _, ok := texts[reason]; !ok {
			reasons, texts[reason] = append(reasons, reason), text
		}
		names[reason] = append(names[reason], kinds[i].GroupResource().String())
	}
	for _, reason := range reasons {
		of := names[reason]
		some := strings.Join(of[:min(len(of), maxNamedKinds)], ", ")
		if more := len(of) - maxNamedKinds; more > 0 {
			some += fmt.Sprintf(" and %d more", more)
		}
		problems = append(problems, fmt.Sprintf("objects of %d of %d kinds are missing or not all there (%s): %s",
			len(of), len(kinds), some, texts[reason]))
	}
	return problems
}

// requestPattern matches the kind that the client adds to a server's message.
var requestPattern = regexp.MustCompile(` \((?:get|list) [^)]*\)$`)

// listFailure returns a reason that groups errors of several kinds, and its description.
func listFailure(err error) (reason, text string) {
	if at := (*url.Error)(nil); errors.As(err, &at) { // the error of the request contains the kind's URL
		return at.Err.Error(), at.Err.Error()
	}
	text = requestPattern.ReplaceAllString(err.Error(), "")
	if r := apierrors.ReasonForError(err); r != metav1.StatusReasonUnknown {
		return string(r), text
	}
	return text, text
}
