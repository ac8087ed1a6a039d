package why

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"clusterctl/hcl/config"
)

// finding is why an object is in its state.
type finding struct {
	state    string // continues a sentence that begins with the object: "does not run"
	reason   string // follows "because"; empty if the object is healthy
	about    Ref    // the object that "it" means in reason
	steps    []Step
	remedies []Remedy
}

// healthy returns the finding of an object that needs nothing.
func healthy(format string, args ...any) *finding {
	return &finding{state: fmt.Sprintf(format, args...)}
}

// broken returns the finding of an object that is a first cause itself. text is its step.
func broken(ref Ref, state, reason, evidence string, remedies ...Remedy) *finding {
	return &finding{
		state: state, reason: reason, about: ref, remedies: remedies,
		steps: []Step{{Object: ref, Text: sentence(reason), Evidence: evidence}},
	}
}

func (f *finding) isHealthy() bool { return f.reason == "" }

// below returns the finding of an object whose state has the cause f.
func (f *finding) below(ref Ref, state, text, evidence string) *finding {
	reason := f.reason
	if f.about != ref && f.about.Name != "" {
		if rest, ok := strings.CutPrefix(reason, "its "); ok {
			reason = "the " + rest + " (" + f.about.String() + ")"
		} else if rest, ok := strings.CutPrefix(reason, "it "); ok {
			reason = f.about.String() + " " + rest
		}
	}
	return &finding{
		state: state, reason: reason, about: f.about, remedies: f.remedies,
		steps: append([]Step{{Object: ref, Text: sentence(text), Evidence: evidence}}, f.steps...),
	}
}

// add adds a step at the end.
func (f *finding) add(ref Ref, text, evidence string) {
	f.steps = append(f.steps, Step{Object: ref, Text: sentence(text), Evidence: evidence})
}

// remedy adds remedies that are not in the finding yet.
func (f *finding) remedy(list ...Remedy) {
	for _, m := range list {
		if !slices.Contains(f.remedies, m) {
			f.remedies = append(f.remedies, m)
		}
	}
}

// sentence begins a text with a capital letter and ends it with a full stop.
func sentence(text string) string {
	text = clause(text)
	if text == "" {
		return ""
	}
	if last := text[len(text)-1]; last != '!' && last != '?' {
		text += "."
	}
	first, _, _ := strings.Cut(text, " ")
	// A name such as web-1 or spec.replicas keeps its case.
	if strings.ContainsFunc(first, func(c rune) bool { return (c < 'a' || c > 'z') && c != ',' && c != ':' }) {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// clause removes spaces and the full stop at the end.
func clause(text string) string { return strings.TrimRight(strings.TrimSpace(text), ". \n") }

// maxRaw limits the bytes of a text from outside before it is cleaned.
const maxRaw = 16 << 10

// cleanText returns a text as one line without control characters, of at most limit characters.
func cleanText(text string, limit int) string {
	if len(text) > maxRaw {
		text = text[:maxRaw]
	}
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	text = config.EscapeLine(text)
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return text
}

// shellSafe are the characters that need no quotes in a shell.
var shellSafe = regexp.MustCompile(`^[A-Za-z0-9_./:=@,+-]+$`)

// arg quotes a name for a shell. Names in references to other objects can have any characters.
func arg(name string) string {
	if shellSafe.MatchString(name) {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

// maxNames is how many names a sentence lists.
const maxNames = 4

// joinNames joins at most maxNames names.
func joinNames(names []string) string {
	if n := len(names) - maxNames; n > 0 {
		return strings.Join(names[:maxNames], ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(names, ", ")
}

// count returns a number with a noun, such as 1 pod or 3 pods.
func count[N int | int32](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// are returns is or are.
func are[N int | int32](n N) string {
	if n == 1 {
		return "is"
	}
	return "are"
}
