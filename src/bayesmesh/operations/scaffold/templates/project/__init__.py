"""Templates of a project of one's own, in which new_project stands for the name of its package."""
