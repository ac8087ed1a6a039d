package plan

import (
	_ "embed" // the page is a file
	"fmt"
	"html/template"
	"io"
	"strings"

	"clusterctl/hcl/config"
)

//go:embed page.html
var pageText string

// Page writes the plan as a page of HTML that needs nothing else: what happens in which order, and each change. secrets are never shown.
func (p *Plan) Page(w io.Writer, secrets []string) error {
	p = p.Masked(secrets)
	actions := map[string]string{}
	shown := struct {
		Plan      *Plan
		Facts     string
		Notes     []string
		Machines  []Machine
		Rotations []Rotation
		Objects   []Object
	}{Plan: p, Facts: p.facts(), Notes: p.notes(), Rotations: p.Rotations}
	for _, m := range p.Machines {
		if actions[m.Address] = m.Action; m.Action != None {
			shown.Machines = append(shown.Machines, m)
		}
	}
	for _, o := range p.Objects {
		if o.Action != None || o.Note != "" {
			shown.Objects = append(shown.Objects, o)
		}
	}
	page, err := template.New("plan").Funcs(template.FuncMap{
		"action": func(address string) string { return actions[address] },
		"anchor": func(address string) string { return "of-" + address },
		"how":    Stage.how,
		"diff":   coloured,
	}).Parse(pageText)
	if err != nil {
		return fmt.Errorf("read the page's template: %w", err)
	}
	var out strings.Builder
	if err := page.Execute(&out, shown); err != nil {
		return fmt.Errorf("fill the page: %w", err)
	}
	for _, secret := range secrets {
		secrets = append(secrets, template.HTMLEscapeString(secret)) // as it stands in the page
	}
	_, err = io.WriteString(w, config.Mask(out.String(), secrets))
	return err
}

// how says how many are worked on at the same time.
func (s Stage) how() string {
	switch n := len(s.Machines); {
	case s.Objects > 0:
		return Number(s.Objects, "object")
	case n < 2:
		return ""
	case s.AtOnce == 0 || s.AtOnce >= n:
		return "all at once"
	case s.AtOnce == 1:
		return "one after the other"
	default:
		return fmt.Sprintf("%d at a time", s.AtOnce)
	}
}

// coloured marks what goes and what comes in a line of a difference.
func coloured(line string) template.HTML {
	text := template.HTMLEscapeString(line)
	switch {
	case strings.HasPrefix(line, "+"):
		text = `<span class="plus">` + text + `</span>`
	case strings.HasPrefix(line, "-"):
		text = `<span class="minus">` + text + `</span>`
	}
	return template.HTML(text) // escaped above
}
