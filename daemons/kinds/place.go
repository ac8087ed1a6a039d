package kinds

// FieldPlace is where the value of a selectable field is written.
type FieldPlace struct {
	Name            string // of the field
	Section, Member string // of the object, and of that
	List, Item      string // if set: a list of the section of whose first item the member Item goes before Member
	Bool            bool   // whether it is true or false, and false when it is not there; a text otherwise
	Many            bool   // whether hardly two objects have the same value
}
